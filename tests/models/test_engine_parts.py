"""Parts of the local engine: drawing over large vocabularies, oneDNN's linear layers, swaps."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from convbench.schema import Sampling
from tests.helpers import tiny_words as tiny
from tests.support.later import later, needs

needs("torch")
torch = later("torch")


@pytest.mark.parametrize("size", [7, 256, 257, 3000])
def test_a_token_is_drawn_where_the_sum_of_all_chances_before_it_ends(size: int) -> None:
    """Against the whole cumulative sum in float64, at uniform numbers well inside a token."""
    from convbench.models.sampling import draw_tokens

    torch.manual_seed(size)
    logits = torch.randn(64, size) * 4
    heats = [0.0, 0.3, 0.7, 1.0] * 16
    chances = torch.softmax(logits.double() / torch.tensor(heats).clamp(min=1e-6)[:, None], -1)
    ends = chances.cumsum(-1)
    wanted = torch.multinomial(chances, 1)[:, 0]
    middle = ends.gather(1, wanted[:, None])[:, 0] - chances.gather(1, wanted[:, None])[:, 0] / 2
    drawn = draw_tokens(
        logits, [Sampling(temperature=heat) for heat in heats], middle.tolist(), None
    )
    greedy = logits.argmax(-1)
    expected = [int(greedy[row] if heats[row] == 0 else wanted[row]) for row in range(64)]
    wide = chances.gather(1, wanted[:, None])[:, 0] > 1e-5
    assert wide.sum() > 48
    assert [d for d, w in zip(drawn, wide, strict=True) if w] == [
        e for e, w in zip(expected, wide, strict=True) if w
    ]


def test_the_ends_of_the_unit_interval_draw_tokens_that_have_a_chance() -> None:
    from convbench.models.sampling import draw_tokens

    logits = torch.full((3, 700), float("-inf"))
    logits[:, 300:302] = 0.0
    hot = [Sampling(temperature=1.0)] * 3
    assert draw_tokens(logits, hot, [0.0, 0.49, 1.0 - 2**-53], None) == [300, 300, 301]
    assert draw_tokens(logits, hot, [1.0, 1.0, 1.0], None) == [
        301,
        301,
        301,
    ]  # rounding, at the worst
    logits[:, 300] = 0.1
    nucleus = [Sampling(temperature=1.0, top_p=0.4)] * 3
    assert draw_tokens(logits, nucleus, [0.1, 0.5, 0.999], None) == [300, 300, 300]


def test_packed_layers_give_what_torch_gives(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from convbench.models.weights import PackedLinear, pack_linear_layers

    folder = tiny.save(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    packed = AutoModelForCausalLM.from_pretrained(folder).eval()
    packed.lm_head.weight = packed.get_input_embeddings().weight  # tied: stays where it is
    plain.lm_head.weight = plain.get_input_embeddings().weight
    pack_linear_layers(packed)
    kinds = [type(module) for module in packed.modules()]
    if torch.backends.mkldnn.is_available():
        assert kinds.count(PackedLinear) == 2 * 7 + 1
        assert torch.nn.Linear not in kinds
        assert packed.lm_head.packed.data_ptr() == packed.get_input_embeddings().weight.data_ptr()
    ids = torch.tensor([random.Random(0).choices(range(60), k=40)] * 3)
    with torch.inference_mode():
        one, two = plain(ids).logits, packed(ids).logits
    assert torch.allclose(one, two, atol=2e-5)


def test_swapped_slots_hold_each_others_tokens() -> None:
    from transformers.cache_utils import DynamicCache

    from convbench.models.kv_slots import SlotCache

    like = DynamicCache()
    like.update(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), 0)
    cache = SlotCache(like)
    cache.resize(3, 10, 0)
    keys, values = cache.held[0]
    keys[0, :, :6], values[2, :, :6] = 1.0, 2.0
    cache.swap_columns(0, 2, 6)
    assert keys[2].sum() == 2 * 6 * 4
    assert keys[0].sum() == 0
    assert values[0].sum() == 2 * 2 * 6 * 4
    assert values[2].sum() == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for its memory")
def test_memory_that_the_cache_outgrew_goes_back_to_the_system() -> None:
    """The C library's allocator keeps a block of this size that lies below another, and after one
    such block went back it takes no pages of their own for the next."""
    from convbench.models.kv_slots import mmap_zeros

    shape, size = (5, 1 << 20), 20 << 20
    torch.zeros(6 << 20).fill_(1)
    before = resident()
    below, above = mmap_zeros(shape, torch.zeros(0)), mmap_zeros(shape, torch.zeros(0))
    assert not below.any()
    below.fill_(1)
    above.fill_(2)
    full = resident()
    assert full - before > 1.9 * size
    del below
    assert full - resident() > 0.9 * size
    assert (above == 2).all()


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
