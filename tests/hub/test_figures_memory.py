"""What the numbers of a card hold of each conversation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from convbench.hub.figures import card_figures
from convbench.reports.policies import Observation, VerdictScores
from convbench.schema import Conversation, Example, JudgeSpec
from convbench.store.grades import GradeRow
from convbench.store.index import VerdictRow
from convbench.store.run import QuestionSplit
from tests.helpers.runs import JUDGE, conversation, example, manifest
from tests.support.memory import BLOCK, held_below


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

    def verdict_rows(self) -> Iterator[VerdictRow]:
        scored = VerdictRow(Path(), 0, 0, "", "j", "f00d", True, 0.5, "", "", 0.25, 1, 1)
        for n in range(self.count):
            yield scored._replace(conversation_id=f"c{n}")

    @property
    def examples(self) -> LongRun:
        return self

    def __getitem__(self, name: str) -> Example:
        return EXAMPLE.model_copy(update={"example_id": name, "group_id": name})

    def judge_specs(self) -> dict[str, JudgeSpec]:
        return {"f00d": JUDGE}


EXAMPLE = example(0)


def observed(run: LongRun, split: str) -> Iterator[tuple[QuestionSplit, GradeRow, Observation]]:
    """What a report would observe of them."""
    assert split == "all"
    graded = GradeRow(Path(), 0, 0, 1.0, 1.0, True, True, False, False, 9)
    for n in range(run.count):
        row = Observation(
            f"q{n // 4}#{n % 4}@1",
            f"q{n // 4}",
            1.0,
            failed=False,
            correct=True,
            unparsed=False,
            thinking=False,
            reasoned=False,
            flags=(),
            verdicts={"j": VerdictScores("f00d", {}, 0.5, failed=False)},
            conversation_id=f"c{n}",
            words=9,
        )
        yield QuestionSplit("train", f"q{n // 4}"), graded, row


@pytest.mark.exhaustive
def test_the_numbers_of_a_card_take_few_bytes_of_each_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("convbench.hub.figures.observe_run", observed)

    def count(many: int) -> None:
        run: Any = LongRun(many)
        found = card_figures(run)
        (part,), (given,) = found.policy, found.rewards
        assert part.accuracy is not None
        assert (part.n, part.accuracy.mean, found.judge_usd) == (many, 1.0, many / 4)
        assert (part.accuracy.groups, given.failed) == (many // 4, 0)

    held_below(60, count, BLOCK + 400, 2 * BLOCK + 400)
