"""Which split a question belongs to: what the source says, or whole units by seeded fractions."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

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
ORDER: tuple[Split, ...] = ("train", "validation", "test")


def rank(seed: int, purpose: str, key: str) -> bytes:
    """Return the sort key of a seeded order that depends on no library and no machine."""
    return hashlib.sha256(f"{seed}/{purpose}/{key}".encode()).digest()


def counted(splits: Iterable[Split]) -> dict[Split, int]:
    """Return how many there are of each split, all three named, in their usual order."""
    found = Counter(splits)
    return {split: found[split] for split in ORDER}


def listed(count: Mapping[Split, int]) -> str:
    """Return counts as a line: `400 train, 100 test`."""
    return ", ".join(f"{count[split]} {split}" for split in ORDER if count.get(split)) or "none"


def refuse_untested(what: object, count: Mapping[Split, int], split: str = "test") -> None:
    """Raise DataError where there is no question of the split that is to be evaluated."""
    if not any(count.get(one) for one in ORDER if split in ("all", one)):
        raise DataError(
            f"{what}: found no question of split {split} ({listed(count)}); expected some to "
            "evaluate on. Build a run that has them: --set task.sample.train=0.8 where fractions "
            "split, --set task.sample.split=fraction where the source's own splits do"
        )


def asked(item: Question | Example) -> str:
    """Return what a question asks and shows beside its options, in lower-case words alone: equal
    for two questions where a policy that knows one knows the other."""
    shown = [item.question, *(str(item.inputs[name]) for name in sorted(item.inputs))]
    words = " ".join(re.findall(r"\w+", " ".join(shown).casefold()))
    return item.question if words in ("", item.question) else words  # no copy of what is held


def sizes(task: TaskSpec, total: int, there: Mapping[Split, int]) -> dict[Split, int]:
    """Return how many of `total` questions each split gets by the task's shares; a split that
    has no row gets none, and the others its share."""
    shares: dict[Split, float] = {"train": task.sample.train, "validation": task.sample.validation}
    shares["test"] = max(0.0, 1 - sum(shares.values()))
    if not all(there.get(split) for split in ORDER):
        shares = {split: shares[split] if there.get(split) else 0.0 for split in ORDER}
        whole = sum(shares.values()) or 1.0
        shares = {split: share / whole for split, share in shares.items()}
    found: dict[Split, int] = {
        "train": round(total * shares["train"]),
        "validation": round(total * shares["validation"]),
    }
    last: Split = "test" if shares["test"] else "train"
    found["test"] = 0
    found[last] += total - sum(found.values())
    return found


def own_splits(task: TaskSpec, questions: Iterable[Question]) -> dict[str, Split]:
    """Return by key the split that each question's row says. Raises DataError for another word."""
    return {item.key: _own(task, item) for item in questions}


def _own(task: TaskSpec, item: Question) -> Split:
    if item.split not in SPLITS:
        raise DataError(
            f"task {task.name}: rows.split: found {item.split!r} for {item.key!r}; expected one "
            f"of {sorted(SPLITS)}"
        )
    return SPLITS[item.split]


def by_source(task: TaskSpec, questions: Sequence[Question]) -> dict[str, Split] | None:
    """Return by key the splits that the source says; None where fractions are to split.

    With `official` that is where all rows are of one split, as in a local copy of one file.
    """
    how = task.sample.split
    if how == "fraction" or (how == "official" and any(item.split is None for item in questions)):
        return None
    found = own_splits(task, questions)
    return None if how == "official" and len(set(found.values())) < 2 else found


def repeated(questions: Iterable[Question], splits: Mapping[str, Split]) -> set[str]:
    """Return the keys of questions that the source also asks in a split more held out."""
    held: dict[str, Split] = {}
    found: set[str] = set()
    for item in sorted(questions, key=lambda item: -ORDER.index(splits[item.key])):
        first = held.setdefault(asked(item), splits[item.key])
        if first != splits[item.key]:
            found.add(item.key)
    return found


def by_fraction(task: TaskSpec, chosen: Sequence[Question], seed: int) -> dict[str, Split]:
    """Split whole units: test first, then validation, the rest train.

    A unit is a group and all groups that ask one of its questions too. It goes to a split only
    while it fits, so that sizes come out exact wherever some unit is small enough.
    """
    unit = units(chosen)
    members = Counter(unit[item.group] for item in chosen)
    room = sizes(task, len(chosen), dict.fromkeys(ORDER, 1))
    of_unit: dict[str, Split] = {}
    for name in sorted(members, key=lambda name: rank(seed, "split", name)):
        held: tuple[Split, ...] = ("test", "validation")
        of_unit[name] = next((split for split in held if members[name] <= room[split]), "train")
        room[of_unit[name]] -= members[name]
    return {item.key: of_unit[unit[item.group]] for item in chosen}


def units(questions: Iterable[Question]) -> dict[str, str]:
    """Return by group the unit it is split with: the first by name of the groups that a question
    of the same words links, directly or through others."""
    unit: dict[str, str] = {}

    def head(name: str) -> str:
        while unit[name] != name:
            name = unit[name]
        return name

    by_words: dict[str, str] = {}
    for item in questions:
        unit.setdefault(item.group, item.group)
        first = by_words.setdefault(asked(item), item.group)
        low, high = sorted((head(first), head(item.group)))
        unit[high] = low
    by_words.clear()
    for name in unit:
        unit[name] = head(name)
    return unit
