"""Splits: their names, their sizes, and what keeps them apart; the order that a seed gives."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from convbench.errors import DataError
from convbench.schema import Example, TaskSpec
from convbench.schema.example import Split
from convbench.store.numbered import Numbered
from convbench.tasks.mapping import Question

SPLITS: dict[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "dev": "validation",
    "test": "test",
}
ORDER: tuple[Split, ...] = ("train", "validation", "test")
"""From what is trained on to what is held out most."""
PART = 4096
"""Names that are sorted at once, about."""


def rank(seed: int, purpose: str, key: str) -> bytes:
    """Return the sort key of a seeded order that depends on no library and no machine."""
    return hashlib.sha256(f"{seed}/{purpose}/{key}".encode()).digest()


def in_order(seed: int, purpose: str, numbers: Sequence[int], names: Numbered) -> array[int]:
    """Return the numbers of some names in the order of their ranks, which are taken in parts: what
    is held of each is its number."""
    parts = [array("i") for _ in range(1 + len(numbers) // PART)]
    for number in numbers:
        first = int.from_bytes(rank(seed, purpose, names[number])[:4], "big")
        parts[first * len(parts) >> 32].append(number)
    found = array("i")
    for part in parts:
        found.extend(sorted(part, key=lambda number: rank(seed, purpose, names[number])))
    return found


def counted(splits: Iterable[Split]) -> dict[Split, int]:
    """Return how many there are of each split, all three named, in their usual order."""
    found = Counter(splits)
    return {split: found[split] for split in ORDER}


def listed(count: Mapping[Split, int]) -> str:
    """Return counts as a line: `400 train, 100 test`."""
    return ", ".join(f"{count[split]} {split}" for split in ORDER if count.get(split)) or "none"


def without_errors(examples: Iterable[Example]) -> str | None:
    """Return why figures of these test questions will have no standard error: all are of one group.
    None where they are of several, or there are none."""
    groups: set[str] = set()
    count = 0
    for example in examples:
        if example.split == "test":
            count += 1
            groups.add(example.group_id)
            if len(groups) > 1:
                return None
    if not count:
        return None
    many = f"the {count} test questions are" if count > 1 else "the one test question is"
    return (
        f"{many} of one group, so that figures on them have no error (it goes by group and needs "
        "two); expected more groups: more questions, a rows.group of smaller units, or a smaller "
        "share in sample.train"
    )


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
