"""Observations of a policy, one a conversation, kept in a temporary file if there are many."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from convbench.store.grades import GradeRow, graded_rows
from convbench.store.index import VerdictRow
from convbench.store.run import QuestionSplit, Run
from convbench.store.spilled import SpilledPieces

NOTHING: Mapping[str, Any] = {}
"""The empty mapping shared by verdicts without details."""
TOGETHER = 64
"""Observations that are pickled as one piece."""
JOINED_AT_ONCE = 1 << 17
"""Conversations in memory while their verdicts are collected."""


class VerdictScores(NamedTuple):
    """One judge's verdict on one conversation."""

    fingerprint: str
    scores: Mapping[str, float]
    reward: float | None
    failed: bool
    details: Mapping[str, Any] = NOTHING


class Observation(NamedTuple):
    """What a report needs of one conversation of a policy."""

    unit: str
    """Key that pairs it with another policy's conversation: question, sample and temperature."""
    group: str
    """Id of the independent group, for clustered errors."""
    temperature: float | None
    """None if none was sent."""
    failed: bool
    correct: bool | None
    """None if it failed or cannot be graded."""
    unparsed: bool
    """Whether it was graded but no answer could be read."""
    thinking: bool | None
    """Whether the last turn has thinking tags."""
    reasoned: bool | None
    """Whether it has reasoning in a separate channel."""
    flags: tuple[str, ...]
    """Findings of the fidelity checks, `SPEAKER:FINDING`."""
    verdicts: Mapping[str, VerdictScores] = NOTHING
    """Verdicts by judge."""
    reviews: Mapping[str, VerdictScores] = NOTHING
    """Verdicts by judge, of judges that review the simulated human."""
    conversation_id: str = ""
    """conversation_id."""
    words: int | None = None
    """Number of words in the policy's turns."""


class Observations:
    """Sized iterable of a policy's observations, unpickled anew on each iteration."""

    def __init__(self, rows: Iterable[Observation] = ()) -> None:
        self._pieces = SpilledPieces()
        self._last: list[Observation] = []
        for row in rows:
            self.add(row)

    def add(self, row: Observation) -> None:
        """Append an observation."""
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


def at_temperature(rows: Iterable[Observation], temperature: float | None) -> Iterator[Observation]:
    """Return the rows of one temperature."""
    return (row for row in rows if row.temperature == temperature)


def observe_run(
    run: Run, split: str, *, branches: bool = False
) -> Iterator[tuple[QuestionSplit, GradeRow, Observation]]:
    """Yield (question, grade, observation) for each conversation of a split, or of `all`; branches
    only if `branches` is set. Raises RunError for a damaged record."""
    graded_conversations = graded_rows(run, split)
    reviewers = run.reviewer_fingerprints()
    while some := list(islice(graded_conversations, JOINED_AT_ONCE)):
        verdicts: dict[str, dict[str, VerdictScores]] = {}
        reviews: dict[str, dict[str, VerdictScores]] = {}
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
                    conversation_id=row.conversation_id,
                    words=graded.words,
                ),
            )


def _score_of(verdict: VerdictRow) -> VerdictScores:
    return VerdictScores(
        verdict.fingerprint,
        verdict.scores,
        verdict.reward,
        not verdict.scored,
        verdict.details or NOTHING,
    )
