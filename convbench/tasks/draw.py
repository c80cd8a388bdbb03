"""Draw questions and split them by group: the same on every machine for the same seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from convbench.errors import DataError
from convbench.schema import Example, TaskSpec
from convbench.schema.example import Split
from convbench.tasks.mapping import Question

SPLITS: dict[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "dev": "validation",
    "test": "test",
}


def rank(seed: int, purpose: str, key: str) -> bytes:
    """Return the sort key of a seeded order that depends on no library and no machine."""
    return hashlib.sha256(f"{seed}/{purpose}/{key}".encode()).digest()


def draw(task: TaskSpec, questions: Sequence[Question], seed: int) -> list[Example]:
    """Return the drawn examples with their splits, in the seeded order.

    Raises DataError where there are fewer questions than `sample.count`.
    """
    count = task.sample.count
    if count != "all" and count > len(questions):
        raise DataError(
            f"task {task.name}: found {len(questions)} questions; expected at least {count}. "
            f"Take what there is with --tasks all, or fewer with --tasks {len(questions)}"
        )
    ordered = sorted(questions, key=lambda item: rank(seed, "draw", item.key))
    chosen = ordered if count == "all" else ordered[:count]
    if task.sample.split == "rows":
        splits = {item.key: _own_split(task, item) for item in chosen}
    else:
        splits = _by_fraction(task, chosen, seed)
    return [_example(task, item, splits[item.key]) for item in chosen]


def _own_split(task: TaskSpec, item: Question) -> Split:
    if item.split not in SPLITS:
        raise DataError(
            f"task {task.name}: rows.split: found {item.split!r} for {item.key!r}; expected one "
            f"of {sorted(SPLITS)}"
        )
    return SPLITS[item.split]


def _by_fraction(task: TaskSpec, chosen: Sequence[Question], seed: int) -> dict[str, Split]:
    """Split whole groups: test first, then validation, the rest train.

    A group goes to a split only while it fits, so that sizes come out exact wherever some
    group is small enough.
    """
    sizes: dict[str, int] = {}
    for item in chosen:
        sizes[item.group] = sizes.get(item.group, 0) + 1
    total = len(chosen)
    room: dict[Split, int] = {
        "validation": round(total * task.sample.validation),
    }
    room["test"] = total - round(total * task.sample.train) - room["validation"]
    of_group: dict[str, Split] = {}
    for group in sorted(sizes, key=lambda name: rank(seed, "split", name)):
        of_group[group] = next(
            (split for split in ("test", "validation") if sizes[group] <= room[split]), "train"
        )
        if of_group[group] != "train":
            room[of_group[group]] -= sizes[group]
    return {item.key: of_group[item.group] for item in chosen}


def _example(task: TaskSpec, item: Question, split: Split) -> Example:
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
