"""Peaks of memory at the paper's scale, counted by hand, and a real scoring beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.models.weights_path import ModelShape, shape_of
from tests.support.later import later

critic = later("convbench.learn.sweet.critic")

LLAMA_8B = {
    "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def shape(tmp_path: Path) -> ModelShape:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    found = shape_of(str(tmp_path))
    assert found is not None
    return found


def test_eight_billion_weights(shape: ModelShape) -> None:
    assert shape.weight_count == pytest.approx(8.03e9, rel=0.001)


def test_scoring_at_eight_billion_weights(shape: ModelShape) -> None:
    """16 replies of 500 tokens after 1,500: the released way held 41 GB of float32 logits
    at once; here 16,384 positions are held in bf16, and one row's own tokens in float32."""
    rows = critic.scoring_batch([(2000, 500)] * 16, critic.BUDGET)
    assert (len(rows.lengths), rows.positions) == (8, 16_000)
    found = critic.scoring_memory(shape, rows, width=2)
    assert found.weights == pytest.approx(16.06e9, rel=0.001)
    assert found.logits == 16_000 * 128_256 * 2 + 500 * 128_256 * 10
    assert found.total < 22e9, "fits on 24 GB"
    whole = critic.scoring_memory(shape, critic.BatchShape((2000,) * 16, (500,) * 16))
    assert whole.logits > 16e9, "float32 and no budget"


def test_a_step_over_eight_processes(shape: ModelShape) -> None:
    rows = critic.BatchShape((8192, 8192), (3000, 3000))
    one = critic.training_memory(shape, rows, width=2, checkpointing=True)
    eight = critic.training_memory(shape, rows, width=2, checkpointing=True, shards=8)
    assert one.training == 8 * eight.training == shape.weight_count * 12
    assert one.inside == eight.inside < critic.training_memory(shape, rows, width=2).inside / 5
    assert eight.total < 80e9 < one.total


def test_the_first_batch_is_the_longest_rows() -> None:
    rows = critic.scoring_batch([(10, 1), (30, 2), (20, 3)], 60)
    assert rows == critic.BatchShape((30, 20), (2, 3))
    assert critic.scoring_batch([(100, 5)], 60).lengths == (100,), "never none"
    assert critic.scoring_batch([], 60).positions == 0
