"""What self-edits taught, read from the verdicts of an adaptation judge."""

from __future__ import annotations

from convbench.judge.resolve import Judge
from convbench.store import Run

Values = list[tuple[str, float]]
"""(passage, accuracy) of each adaptation."""
NOTHING, PASSAGE, UNTRAINED = "nothing", "passage only", "untrained self-edits"
"""What was trained on, beside the rounds and other models' edits."""


def accuracies(run: Run, judge: Judge, split: str = "test") -> Values:
    """Return (passage, accuracy) of every judged self-edit of a split."""
    example_of = {c.conversation_id: run.examples[c.example_id] for c in run.conversations()}
    found = []
    for verdict in run.verdicts():
        example = example_of.get(verdict.conversation_id)
        if example is None or example.split != split or verdict.failure is not None:
            continue
        if verdict.judge == judge.name:
            found.append((example.group_id, verdict.scores["accuracy"]))
    return found


def learners(run: Run, judge: Judge) -> set[str]:
    """Return the fingerprints of the weights that learnt a run's self-edits."""
    found = (v for v in run.verdicts() if v.judge == judge.name and v.failure is None)
    return {v.details["learner"] for v in found}
