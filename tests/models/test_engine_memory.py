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
    assert shares == (pytest.approx(USABLE / 2), pytest.approx(USABLE / 2))
    for share, engine in zip(shares, (teacher, checkpoint), strict=True):
        assert share * 80e9 >= engine.weights + engine.least_cache + engine.overhead
    assert shares_of_card([teacher, checkpoint], 40e9) is None
    small = engine_memory(ModelShape(2048, 16, 128_256, 8192, 2048, 512, tied=True), 4096, 32)
    beside = shares_of_card([teacher, small], 80e9)
    assert beside is not None
    assert sum(beside) == pytest.approx(USABLE)
    assert (beside[0] - beside[1]) * 80e9 == pytest.approx(teacher.weights - small.weights)
