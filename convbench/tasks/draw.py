"""Draw questions and split them by group: the same on every machine for the same seed."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from convbench.errors import DataError
from convbench.schema import Example, TaskSpec
from convbench.schema.example import Split
from convbench.tasks.found import Found
from convbench.tasks.fractions import by_fraction
from convbench.tasks.mapping import Question
from convbench.tasks.splits import ORDER, SPLITS, in_order, sizes

ELSEWHERE = "also asked in the source's held-out rows"
"""Why a question of an official train (or validation) file is left out."""


def choose(
    task: TaskSpec, found: Found, seed: int, rejected: Counter[str] | None = None
) -> tuple[Sequence[int], bytes]:
    """Return the numbers of the drawn questions in the seeded order, and of each the place of its
    split in ORDER.

    What is left out for its split's sake is counted in `rejected`. Raises DataError where there
    are fewer questions than `sample.count`, in all or of an official split.
    """
    said = by_source(task, found)
    official = said and task.sample.split == "official"
    among = _apart(found, rejected) if official else range(len(found))
    ordered = in_order(seed, "draw", among, found.keys)
    _enough(task, len(ordered))
    if official:
        chosen = _official(task, ordered, found.split_of)
    else:
        chosen = ordered if task.sample.count == "all" else ordered[: task.sample.count]
    if said:
        return chosen, bytes(found.split_of[number] for number in chosen)
    return chosen, by_fraction(task, found, chosen, seed)


def by_source(task: TaskSpec, found: Found) -> bool:
    """Return whether the source says the splits, else fractions are to split. Raises DataError
    where it says one that there is not.

    With `official` fractions are to where all rows are of one split, as in a local copy of one
    file.
    """
    how = task.sample.split
    if how == "fraction" or (how == "official" and found.unsaid):
        return False
    if found.odd is not None:
        raise DataError(
            f"task {task.name}: rows.split: found {found.odd.split!r} for {found.odd.key!r}; "
            f"expected one of {sorted(SPLITS)}"
        )
    return how == "rows" or len(set(found.split_of)) > 1


def _apart(found: Found, rejected: Counter[str] | None) -> array[int]:
    """Return the questions without those that the source also asks in a split more held out."""
    held = bytearray(len(found.words))
    """Of each question's words, the split most held out that asks it."""
    for words, split in zip(found.words_of, found.split_of, strict=True):
        held[words] = max(held[words], split)
    apart = array("i", (number for number, words in enumerate(found.words_of)
                        if found.split_of[number] == held[words]))  # fmt: skip
    if rejected is not None and len(apart) < len(found):
        rejected[ELSEWHERE] += len(found) - len(apart)
    return apart


def _enough(task: TaskSpec, there: int) -> None:
    count = task.sample.count
    if count != "all" and count > there:
        raise DataError(
            f"task {task.name}: found {there} questions; expected at least {count}. "
            f"Take what there is with --tasks all, or fewer with --tasks {there}"
        )


def _official(task: TaskSpec, ordered: array[int], split_of: Sequence[int]) -> array[int]:
    """Return the first questions of each official split, as many as the task's shares say."""
    if task.sample.count == "all":
        return ordered
    there = Counter(ORDER[split_of[number]] for number in ordered)
    room = sizes(task, task.sample.count, there)
    for split in ORDER:
        if room[split] > there[split]:
            raise DataError(
                f"task {task.name}: found {there[split]} questions of split {split}; expected "
                f"{room[split]} of {task.sample.count}. Take what there is with --tasks all, or "
                "other shares with --set task.sample.train=SHARE"
            )
    chosen = array("i")
    for number in ordered:
        split = ORDER[split_of[number]]
        if room[split] > 0:
            room[split] -= 1
            chosen.append(number)
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
