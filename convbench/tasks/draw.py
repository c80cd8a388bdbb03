"""Draw questions and split them by group: the same on every machine for the same seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from convbench.errors import DataError
from convbench.schema import Example, TaskSpec
from convbench.schema.example import Split
from convbench.tasks.mapping import Question
from convbench.tasks.splits import ORDER, by_fraction, by_source, rank, repeated, sizes

ELSEWHERE = "also asked in the source's held-out rows"
"""Why a question of an official train (or validation) file is left out."""


def choose(
    task: TaskSpec,
    questions: Sequence[Question],
    seed: int,
    rejected: Counter[str] | None = None,
) -> tuple[Sequence[Question], Mapping[str, Split]]:
    """Return the drawn questions in the seeded order, and their splits by key.

    What is left out for its split's sake is counted in `rejected`. Raises DataError where there
    are fewer questions than `sample.count`, in all or of an official split.
    """
    splits = by_source(task, questions)
    official = splits is not None and task.sample.split == "official"
    if splits is not None and official:
        questions = _apart(questions, splits, rejected)
    ordered = sorted(questions, key=lambda item: rank(seed, "draw", item.key))
    _enough(task, len(ordered))
    if splits is not None and official:
        chosen = _official(task, ordered, splits)
    else:
        chosen = ordered if task.sample.count == "all" else ordered[: task.sample.count]
    if splits is None:
        splits = by_fraction(task, chosen, seed)
    return chosen, splits


def _apart(
    questions: Sequence[Question], splits: Mapping[str, Split], rejected: Counter[str] | None
) -> list[Question]:
    """Return the questions without those that the source also asks in a split more held out."""
    twice = repeated(questions, splits)
    if rejected is not None and twice:
        rejected[ELSEWHERE] += len(twice)
    return [item for item in questions if item.key not in twice]


def _enough(task: TaskSpec, there: int) -> None:
    count = task.sample.count
    if count != "all" and count > there:
        raise DataError(
            f"task {task.name}: found {there} questions; expected at least {count}. "
            f"Take what there is with --tasks all, or fewer with --tasks {there}"
        )


def _official(
    task: TaskSpec, ordered: Sequence[Question], splits: Mapping[str, Split]
) -> list[Question]:
    """Return the first questions of each official split, as many as the task's shares say."""
    if task.sample.count == "all":
        return list(ordered)
    there = Counter(splits[item.key] for item in ordered)
    room = sizes(task, task.sample.count, there)
    for split in ORDER:
        if room[split] > there[split]:
            raise DataError(
                f"task {task.name}: found {there[split]} questions of split {split}; expected "
                f"{room[split]} of {task.sample.count}. Take what there is with --tasks all, or "
                "other shares with --set task.sample.train=SHARE"
            )
    chosen: list[Question] = []
    for item in ordered:
        if room[splits[item.key]] > 0:
            room[splits[item.key]] -= 1
            chosen.append(item)
    return chosen


def example_of(task: TaskSpec, item: Question, split: Split) -> Example:
    return Example(
        example_id=item.key,
        task=task.name,
        split=split,
        group_id=item.group,
        question=item.question,
        choices=item.choices,
        inputs=item.inputs,
        answer=item.answer,
        hidden=item.hidden,
    )
