"""Read the accuracies after self-edits from the verdicts of an adaptation judge."""

from __future__ import annotations

from collections.abc import Iterable

from convbench.judges.resolve import Judge
from convbench.store import Run

Values = list[tuple[str, float]]
"""(passage, accuracy) of each adaptation."""
NOTHING, PASSAGE, UNTRAINED = "nothing", "passage only", "untrained self-edits"
"""Labels of the baselines: what was trained on."""


def edit_accuracies(run: Run, judge: Judge, split: str | None = "test") -> Values:
    """Return (passage, accuracy from 0 to 1) of every self-edit that a judge of this name scored,
    on one split; None takes all splits.

    The passage is its group id, so it occurs once for each of its edits. Empty without verdicts.
    """
    question_of = {row.conversation_id: question for row, question in run.joined_rows()}
    values = []
    for verdict in run.verdict_rows():
        question = question_of.get(verdict.conversation_id)
        if question is None or split not in (None, question.split) or not verdict.scored:
            continue
        if verdict.judge == judge.name:
            values.append((question.group_id, verdict.scores["accuracy"]))
    return values


def learner_fingerprints(run: Run, judge: Judge) -> set[str]:
    """Return the fingerprints of the weights that a judge of this name adapted to a run's
    self-edits, from its scored verdicts; empty without any."""
    return {
        row.details["learner"]
        for row in run.verdict_rows()
        if row.judge == judge.name and row.scored
    }


def count_ties(values: Iterable[tuple[str, float]]) -> tuple[int, int]:
    """Return (number of passages whose edits all have equal values, number of passages with two
    edits or more). Values are equal if they differ by less than 1e-9; the first count is of such
    passages only."""
    by_passage: dict[str, list[float]] = {}
    for passage, value in values:
        by_passage.setdefault(passage, []).append(value)
    several = [each for each in by_passage.values() if len(each) > 1]
    return sum(max(each) - min(each) < 1e-9 for each in several), len(several)


def tie_warning(values: Iterable[tuple[str, float]]) -> str | None:
    """Return a warning if on more than half of the passages with several edits all edits have equal
    values, so that the best edit is drawn among equals; else None."""
    equal, several = count_ties(values)
    if 2 * equal <= several:
        return None
    return (
        f"on {equal} of {several} passages all edits have equal scores, so the best one is chosen "
        "at random. Use a finer grade (args.inner.grade), more questions per passage, or more edits"
    )
