"""Engines beside each other on cards: weights, cache, shares and copies."""

from __future__ import annotations

import pytest

from convbench.models.engine_memory import (
    ENGINE_BYTES,
    USABLE,
    engine_memory,
    place_engine,
    shares_of_card,
)
from convbench.models.weights_path import ModelShape

LLAMA_8B = ModelShape(4096, 32, 128_256, 14_336, 4096, 1024, tied=False)
LLAMA_70B = ModelShape(8192, 80, 128_256, 28_672, 8192, 1024, tied=False)


def test_an_engine_holds_weights_in_bf16_and_the_keys_and_values_of_its_conversations() -> None:
    memory = engine_memory(LLAMA_8B, 2048, 32)
    assert memory.weights == pytest.approx(16.06e9, rel=0.001)
    assert memory.least_cache == 131_072 * 2048, "128 KiB a token of Llama-3.1-8B"
    assert memory.cache == 32 * memory.least_cache
    assert memory.total_bytes == memory.weights + memory.cache + ENGINE_BYTES


def test_a_copy_on_each_card_and_split_where_one_card_does_not_hold_it() -> None:
    small, large = engine_memory(LLAMA_8B, 2048, 32), engine_memory(LLAMA_70B, 4096, 32)
    eight = place_engine(small, 8, 80e9)
    assert eight is not None
    assert (eight.cards_each, eight.copies) == (1, 8)
    assert eight.share == pytest.approx(small.total_bytes / 80e9)
    split = place_engine(large, 8, 80e9)
    assert split is not None
    assert (split.cards_each, split.copies) == (4, 2), "141 GB of weights, and room beside them"
    assert place_engine(large, 1, 80e9) is None
    assert place_engine(small, 0, 0.0) is None
    tight = place_engine(engine_memory(LLAMA_8B, 8192, 64), 1, 80e9)
    assert tight is not None
    assert tight.share == USABLE, "fewer conversations at once"


def test_a_teacher_and_a_checkpoint_share_a_card() -> None:
    teacher, checkpoint = engine_memory(LLAMA_8B, 4096, 32), engine_memory(LLAMA_8B, 8192, 32)
    shares = shares_of_card([teacher, checkpoint], 80e9)
    assert shares is not None
    assert sum(shares) == pytest.approx(USABLE)
    longer = checkpoint.least_cache - teacher.least_cache
    assert (shares[1] - shares[0]) * 80e9 == pytest.approx(longer), "the rest in equal parts"
    for share, engine in zip(shares, (teacher, checkpoint), strict=True):
        assert share * 80e9 >= engine.weights + engine.least_cache + engine.overhead
    assert shares_of_card([teacher, checkpoint], 40e9) is None
    small = engine_memory(ModelShape(2048, 16, 128_256, 8192, 2048, 512, tied=True), 4096, 32)
    beside = shares_of_card([teacher, small], 80e9)
    assert beside is not None
    assert sum(beside) == pytest.approx(USABLE)
    assert (beside[0] - beside[1]) * 80e9 == pytest.approx(teacher.least_bytes - small.least_bytes)


def test_a_share_that_is_set_stays_and_the_others_have_what_it_leaves() -> None:
    engine = engine_memory(LLAMA_8B, 8192)
    assert engine.least_bytes == pytest.approx(21.1e9, rel=0.01)
    assert shares_of_card([engine, engine], 80e9, (0.3, None)) == (0.3, pytest.approx(0.6))
    assert shares_of_card([engine, engine], 80e9, (0.25, None)) is None, "20 GB hold none"
    assert shares_of_card([engine, engine], 80e9, (0.7, None)) is None, "16 GB are left"
    assert shares_of_card([engine, engine], 80e9, (0.3, 0.5)) == (0.3, 0.5)
    both = sum(shares_of_card([engine, engine], 48e9) or ())
    assert both == pytest.approx(USABLE), "43.2 GB hold 42.3"
    assert shares_of_card([engine, engine], 46e9) is None
