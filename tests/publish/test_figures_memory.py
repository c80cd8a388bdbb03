"""What the numbers of a card hold of each conversation."""

from __future__ import annotations

import pytest

from convbench.publish.figures import _Given, _Talks
from convbench.stats.columns import BLOCK
from tests.support.memory import held_below

ROW = {
    "split": "train", "temperature": 0.7, "failed": None, "correct": True, "unparsed": False,
    "thinking": 1, "reasoned": 0, "cost_usd": 0.5, "prompt_tokens": 3, "completion_tokens": 4,
    "cut": False, "flagged": False, "judge": "rules", "reward": 0.5,
}  # fmt: skip


@pytest.mark.exhaustive
def test_the_numbers_of_a_card_take_few_bytes_of_each_conversation() -> None:
    def count(many: int) -> None:
        talks, given = _Talks(), _Given()
        for n in range(many):
            row = {**ROW, "group_id": f"q{n // 4}"}
            talks.add(row)
            given.add(row)
        (part,) = (one.row() for one in talks.parts.values())
        assert (part["n"], part["accuracy"].mean, talks.cost.total) == (many, 1.0, many / 2)
        assert (part["accuracy"].groups, given.row("rules", "train")["failed"]) == (many // 4, 0)

    held_below(20, count, BLOCK + 400, 3 * BLOCK + 400)
