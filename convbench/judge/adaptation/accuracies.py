"""What self-edits taught, read from the verdicts of an adaptation judge."""

from __future__ import annotations

from collections.abc import Iterable

from convbench.judge.resolve import Judge
from convbench.store import Run

Values = list[tuple[str, float]]
"""(passage, accuracy) of each adaptation."""
NOTHING, PASSAGE, UNTRAINED = "nothing", "passage only", "untrained self-edits"
"""What was trained on, beside the rounds and other models' edits."""


def accuracies(run: Run, judge: Judge, split: str | None = "test") -> Values:
    """Return (passage, accuracy) of every judged self-edit of a split; None: of all."""
    example_of = {c.conversation_id: run.examples[c.example_id] for c in run.conversations()}
    found = []
    for verdict in run.verdicts():
        example = example_of.get(verdict.conversation_id)
        if example is None or split not in (None, example.split) or verdict.failure is not None:
            continue
        if verdict.judge == judge.name:
            found.append((example.group_id, verdict.scores["accuracy"]))
    return found


def learners(run: Run, judge: Judge) -> set[str]:
    """Return the fingerprints of the weights that learnt a run's self-edits."""
    found = (v for v in run.verdicts() if v.judge == judge.name and v.failure is None)
    return {v.details["learner"] for v in found}


def tied(values: Iterable[tuple[str, float]]) -> tuple[int, int]:
    """Return (passages whose edits all taught the same, passages with two edits or more)."""
    found: dict[str, list[float]] = {}
    for passage, value in values:
        found.setdefault(passage, []).append(value)
    several = [each for each in found.values() if len(each) > 1]
    return sum(max(each) - min(each) < 1e-9 for each in several), len(several)


def tie_warning(values: Iterable[tuple[str, float]]) -> str | None:
    """Return what to say where most passages tie, so that the best edit is drawn among equals."""
    equal, several = tied(values)
    if 2 * equal <= several:
        return None
    return (
        f"on {equal} of {several} passages all edits teach the same: the best of them is chance. "
        "A finer grade (args.inner.grade), more questions a passage or more edits tell them apart"
    )
