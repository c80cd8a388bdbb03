"""What a policy did, conversation by conversation, in a temporary file where they are many."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from convbench.store.grades import GradeRow, graded_rows
from convbench.store.index import VerdictRow
from convbench.store.run import Question, Run
from convbench.store.spilled import Pieces

NOTHING: Mapping[str, Any] = {}
"""What most verdicts have of details."""
TOGETHER = 64
"""Observations that are written, and read again, as one."""
JOINED_AT_ONCE = 1 << 17
"""Conversations that are held while their verdicts are looked for."""


class Scored(NamedTuple):
    """What one judge said of one conversation."""

    fingerprint: str
    scores: Mapping[str, float]
    reward: float | None
    failed: bool
    details: Mapping[str, Any] = NOTHING


class Observation(NamedTuple):
    """One conversation of a policy."""

    unit: str
    """Names the same place in another policy's run: question, sample, temperature."""
    group: str
    """The independent unit."""
    temperature: float | None
    """None where none was sent."""
    failed: bool
    correct: bool | None
    """None where it failed or cannot be graded."""
    unparsed: bool
    """Graded, and no answer could be read."""
    thinking: bool | None
    """Whether the last turn thinks in tags."""
    reasoned: bool | None
    """Whether it was thought of in a channel of its own."""
    flags: tuple[str, ...]
    """Findings of the fidelity checks, `SPEAKER:FINDING`."""
    verdicts: Mapping[str, Scored] = NOTHING
    """By judge."""
    reviews: Mapping[str, Scored] = NOTHING
    """By judge, of those that review the simulated human."""
    talk: str = ""
    """conversation_id."""
    words: int | None = None
    """Words of the policy's turns."""


class Rows:
    """A policy's observations, made again each time they are looked at."""

    def __init__(self, rows: Iterable[Observation] = ()) -> None:
        self._pieces = Pieces()
        self._last: list[Observation] = []
        for row in rows:
            self.add(row)

    def add(self, row: Observation) -> None:
        """Add one."""
        self._last.append(row)
        if len(self._last) == TOGETHER:
            self._pieces.add(pickle.dumps(self._last))
            self._last = []

    def __len__(self) -> int:
        return len(self._pieces) * TOGETHER + len(self._last)

    def __iter__(self) -> Iterator[Observation]:
        for number in range(len(self._pieces)):
            yield from pickle.loads(self._pieces[number])  # noqa: S301 - written above
        yield from self._last


def at(rows: Iterable[Observation], temperature: float | None) -> Iterator[Observation]:
    """Yield those of one temperature."""
    return (row for row in rows if row.temperature == temperature)


def observe(
    run: Run, split: str, *, branches: bool = False
) -> Iterator[tuple[Question, GradeRow, Observation]]:
    """Yield what is observed of a run's conversations of a split, or of `all`. Raises RunError for
    a damaged record among them."""
    found = graded_rows(run, split)
    reviewers = run.reviewers()
    while some := list(islice(found, JOINED_AT_ONCE)):
        verdicts: dict[str, dict[str, Scored]] = {}
        reviews: dict[str, dict[str, Scored]] = {}
        for row, *_ in some:
            verdicts[row.conversation_id], reviews[row.conversation_id] = {}, {}
        for verdict in run.verdict_rows():
            into = reviews if verdict.fingerprint in reviewers else verdicts
            if verdict.conversation_id in into:
                into[verdict.conversation_id][verdict.judge] = _score_of(verdict)
        for row, question, graded in some:
            if row.is_branch and not branches:
                continue
            yield (
                question,
                graded,
                Observation(
                    unit=f"{row.example_id}#{row.sample}@{graded.temperature:g}",
                    group=question.group_id,
                    temperature=graded.sent_temperature,
                    failed=not row.ended,
                    correct=graded.correct,
                    unparsed=graded.correct is not None and not graded.answered,
                    thinking=graded.thinking,
                    reasoned=graded.reasoned,
                    flags=tuple(row.flags),
                    verdicts=verdicts[row.conversation_id],
                    reviews=reviews[row.conversation_id],
                    talk=row.conversation_id,
                    words=graded.words,
                ),
            )


def _score_of(verdict: VerdictRow) -> Scored:
    return Scored(
        verdict.fingerprint,
        verdict.scores,
        verdict.reward,
        not verdict.scored,
        verdict.details or NOTHING,
    )
