"""What the numbers of a card hold of each conversation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from convbench.answers.grade import grade
from convbench.publish.figures import figures
from convbench.schema import Conversation, Example, JudgeSpec, Verdict
from convbench.stats.columns import BLOCK
from tests.publish.runs import JUDGE, conversation, example, manifest, verdict
from tests.support.memory import held_below


@dataclass
class LongRun:
    """Conversations, four about each question, that are made as they are read."""

    count: int
    manifest = manifest()

    def conversations(self) -> Iterator[Conversation]:
        talk = conversation(0)
        for n in range(self.count):
            named = {"conversation_id": f"c{n}", "key": f"k{n}", "example_id": f"q{n // 4}"}
            yield talk.model_copy(update=named)

    def verdicts(self) -> Iterator[Verdict]:
        given = verdict(conversation(0), 0.5, cost_usd=0.25)
        for n in range(self.count):
            yield given.model_copy(update={"conversation_id": f"c{n}"})

    @property
    def examples(self) -> LongRun:
        return self

    def __getitem__(self, name: str) -> Example:
        return EXAMPLE.model_copy(update={"example_id": name, "group_id": name})

    def judge_specs(self) -> dict[str, JudgeSpec]:
        return {"f00d": JUDGE}


EXAMPLE = example(0)


@pytest.mark.exhaustive
def test_the_numbers_of_a_card_take_few_bytes_of_each_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Graded once: under the tracer it would take minutes."""
    graded = grade(LongRun.manifest.protocol, conversation(0), EXAMPLE)
    monkeypatch.setattr("convbench.publish.figures.grade", lambda *_: graded)

    def count(many: int) -> None:
        run: Any = LongRun(many)
        found = figures(run)
        (part,), (given,) = found.policy, found.rewards
        assert part.accuracy is not None
        assert (part.n, part.accuracy.mean, found.judge_usd) == (many, 1.0, many / 4)
        assert (part.accuracy.groups, given.failed) == (many // 4, 0)

    held_below(60, count, BLOCK + 400, 2 * BLOCK + 400)
