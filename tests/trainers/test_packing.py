"""Packed rows: the padded gradient, no row sees another, and what cannot do it is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.job import Job
from convbench.learn.weights import Weighted
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.exact import apart
from tests.support.later import later
from tests.support.one_line import one_line

torch = later("torch")
transformers = later("transformers")
packing = later("convbench.learn.kernels")
recording = later("tests.helpers.workers.gradients")

BY_ROW = "convbench-by-row"
Make = Callable[..., tuple[Job, Weighted]]


@pytest.fixture
def make(tmp_path: Path, run: Run, model: Path) -> Make:
    """Resolve a recipe, one row a turn (lengths from 40 to 140), and prepare its data."""

    def prepare(recipe: str, **sets: Any) -> tuple[Job, Weighted]:
        quick = {"fit.max_steps": 2, "fit.batch_size": 9, "data.unit": "turn"}
        return tiny.prepared(tmp_path, recipe, run, model, **{**quick, **sets})

    return prepare


LORA = {"lora.r": 4, "lora.alpha": 8, "lora.dropout": 0.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "adapters, checkpointing": (
        "swift",
        {**LORA, "fit.gradient_checkpointing": True, "fit.normalize": "lengths"},
    ),
    "exact anchor": ("swift-anchored", {}),
    "ratios of a row, float64": (
        "tis",
        {"loss.ratio": "sequence", "fit.batch_size": 4, "fit.precision": "fp64"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_padded_rows(make: Make, case: str) -> None:
    """Two steps, so that also what the first one made of the weights is the same."""
    recipe, sets = CASES[case]
    torch.manual_seed(0)
    padded = recording.record(*make(recipe, **sets))
    torch.manual_seed(0)
    found = recording.record(*make(recipe, **sets, **{"fit.packing": True}))
    for step in range(2):
        moved = {n: g for n, g in padded["steps"][step].items() if g.any()}
        assert len(moved) > 10
        assert apart({n: found["steps"][step][n] for n in moved}, moved) < 1e-5
    assert found["loss"] == pytest.approx(padded["loss"], rel=1e-5)
    assert found["log_ratio"] == pytest.approx(padded["log_ratio"], abs=1e-4)


def batch(lengths: list[int]) -> dict[str, torch.Tensor]:
    """Rows of drawn tokens, padded at their end."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(3, 200, (n,), generator=draw) for n in lengths]
    return {
        "input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
        "attention_mask": torch.nn.utils.rnn.pad_sequence(
            [torch.ones_like(row) for row in rows], batch_first=True
        ),
        "labels": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100),
    }


def mistral() -> transformers.MistralForCausalLM:
    """A tiny model that sees eight tokens back."""
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        vocab_size=300, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=8, initializer_range=0.2,
    ))  # fmt: skip


def like() -> Any:
    """What a pack is made like: a tensor of a batch."""
    return torch.zeros(1, dtype=torch.long)


@pytest.mark.parametrize(("attention", "way"), [
    ("sdpa", BY_ROW), ("eager", "eager"), ("window", "sdpa"),
])  # fmt: skip
def test_no_row_sees_another(model: Path, attention: str, way: str) -> None:
    """Another neighbour in the pack changes not a bit, where the row's own first token changes what
    follows."""
    if attention == "window":
        net: Any = mistral()
    else:
        net = transformers.AutoModelForCausalLM.from_pretrained(
            model, attn_implementation=attention
        )
    rows = batch([30, 17, 13, 9])
    assert packing.choose_attention(net, net, like()) == way == net.config._attn_implementation
    packs = packing.pack_batch(rows, way)
    assert packs.inputs["input_ids"].shape == ((1, 69) if way == BY_ROW else (3, 30))

    def scores() -> torch.Tensor:
        given = {name: value for name, value in packs.inputs.items() if name != "labels"}
        with torch.no_grad():
            return packs.unpack(net(**given, use_cache=False).logits[:, :-1])

    before = scores()
    begins = (packs.inputs["input_ids"] == rows["input_ids"][1, 0]).nonzero().tolist()
    pack, at = next((p, a) for p, a in begins if packs.inputs["position_ids"][p, a] == 0)
    packs.inputs["input_ids"][pack, at] += 1
    after = scores()
    assert torch.equal(after[[0, 2, 3]], before[[0, 2, 3]])
    assert (after[1, :8] != before[1, :8]).any(-1).all()
    if attention != "window":
        net.set_attn_implementation(attention)
    for row, length in enumerate([30, 17, 13, 9]):
        alone = net(input_ids=rows["input_ids"][row : row + 1, :length]).logits[0, :-1]
        assert torch.allclose(before[row, : length - 1], alone, atol=1e-5)
        assert not before[row, length - 1 :].any(), "padding is 0"


def test_packs_are_no_longer_than_a_row_and_few() -> None:
    starts = packing.pack_batch(batch([30, 17, 13, 9]), BY_ROW).inputs["cu_seq_lens_q"]
    assert starts.tolist() == [0, 30, 47, 60, 69]
    draw = random.Random(0)
    for _ in range(50):
        lengths = [draw.randint(2, 99) for _ in range(draw.randint(1, 20))]
        found = packing.assign_packs(lengths, max(lengths))
        assert sorted(i for pack in found for i in pack) == list(range(len(lengths)))
        assert max(sum(lengths[i] for i in pack) for pack in found) == max(lengths)
        assert len(found) <= 1.7 * sum(lengths) / max(lengths) + 1


def test_a_model_whose_rows_see_each_other_is_refused_in_one_line(make: Make, model: Path) -> None:
    state = transformers.MambaForCausalLM(transformers.MambaConfig(
        vocab_size=300, hidden_size=16, state_size=4, num_hidden_layers=1, expand=2,
        time_step_rank=2, use_mambapy=False,
    ))  # fmt: skip
    with pytest.raises(
        TrainError, match=r"see each other.*mamba.*expected fit.packing=false"
    ) as seen:
        packing.choose_attention(state, state, like())
    one_line(seen.value)
    net = transformers.LlamaForCausalLM.from_pretrained(model)
    net.config._attn_implementation_internal = "paged|sdpa"
    with pytest.raises(TrainError, match=r"found attention 'paged\|sdpa'.*expected") as caught:
        packing.choose_attention(net, net, like())
    one_line(caught.value)
    for recipe in ("kto", "ipo"):
        with pytest.raises(
            TrainError, match=rf"'{recipe}': found fit.packing.*expected false"
        ) as off:
            make(recipe, **{"fit.packing": True})
        one_line(off.value)
    with pytest.raises(TrainError, match=r"found no accelerator whose memory would be saved"):
        recording.record(*make("swift", **{"fit.activation_offloading": True}))
