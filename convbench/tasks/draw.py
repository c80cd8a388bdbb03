"""Draw questions and split them by group: the same on every machine for the same seed."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from convbench.errors import DataError
from convbench.schema import Example, TaskSpec
from convbench.schema.task import SPLITS, Split
from convbench.store.lazy_sequence import LazySequence
from convbench.store.numbered import NameNumbers
from convbench.store.spilled import SpilledPieces
from convbench.tasks.mapping import TaskQuestion

SPLIT_NAMES: dict[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "dev": "validation",
    "test": "test",
}
PART = 4096
"""About how many names are sorted at once."""


def rank_key(seed: int, purpose: str, key: str) -> bytes:
    """Return the sort key of a seeded order, 32 bytes of SHA-256, which depends on no library and
    no machine."""
    return hashlib.sha256(f"{seed}/{purpose}/{key}".encode()).digest()


def seeded_order(seed: int, purpose: str, numbers: Sequence[int], names: NameNumbers) -> array[int]:
    """Return the numbers in the order of their names' `rank_key`, as an array.

    Keys are computed in parts, so that memory holds only the numbers.
    """
    parts = [array("i") for _ in range(1 + len(numbers) // PART)]
    for number in numbers:
        first = int.from_bytes(rank_key(seed, purpose, names[number])[:4], "big")
        parts[first * len(parts) >> 32].append(number)
    ordered = array("i")
    for part in parts:
        ordered.extend(sorted(part, key=lambda number: rank_key(seed, purpose, names[number])))
    return ordered


def count_splits(splits: Iterable[Split]) -> dict[Split, int]:
    """Return the number of questions of each split, with all three splits, in their usual order."""
    counts = Counter(splits)
    return {split: counts[split] for split in SPLITS}


def format_counts(count: Mapping[Split, int]) -> str:
    """Return counts as a line like `400 train, 100 test`; splits without questions are left out,
    and it is `none` without any."""
    return ", ".join(f"{count[split]} {split}" for split in SPLITS if count.get(split)) or "none"


def single_group_warning(examples: Iterable[Example]) -> str | None:
    """Return a warning that figures on these test questions will have no standard error if all are
    of one group, or None if they are of several groups or there are none."""
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
    many = f"all {count} test questions are" if count > 1 else "the only test question is"
    return (
        f"{many} in one group, so their figures have no standard error (it is clustered by group "
        "and needs two groups); use more questions, smaller units in rows.group, or a smaller "
        "sample.train"
    )


def refuse_untested(what: object, count: Mapping[Split, int], split: str = "test") -> None:
    """Raise DataError if the split that is to be evaluated has no question. `all` needs one in any
    split; a split that `count` lacks has 0."""
    if not any(count.get(name) for name in SPLITS if split in ("all", name)):
        raise DataError(
            f"{what}: found no question of split {split} ({format_counts(count)}); expected some "
            "to evaluate on. Build a run that has some: --set task.sample.train=0.8 with split "
            "fractions, --set task.sample.split=fraction with the source's own splits"
        )


def question_words(item: TaskQuestion | Example) -> str:
    """Return the words of a question and its inputs, in lower case and joined by spaces: equal for
    two questions if a policy that knows one knows the other.

    Inputs follow in the order of their names. A question without words is returned as it is.
    """
    shown = [item.question, *(str(item.inputs[name]) for name in sorted(item.inputs))]
    words = " ".join(re.findall(r"\w+", " ".join(shown).casefold()))
    return item.question if words in ("", item.question) else words  # saves a copy in memory


def split_sizes(task: TaskSpec, total: int, available: Mapping[Split, int]) -> dict[Split, int]:
    """Return how many of `total` questions each of the three splits gets by the task's shares; the
    counts sum to `total`.

    A split without rows in `available` gets none, and the others share its part. Train and
    validation are rounded; the rest is test, or train if test has no share.
    """
    shares: dict[Split, float] = {"train": task.sample.train, "validation": task.sample.validation}
    shares["test"] = max(0.0, 1 - sum(shares.values()))
    if not all(available.get(split) for split in SPLITS):
        shares = {split: shares[split] if available.get(split) else 0.0 for split in SPLITS}
        share_sum = sum(shares.values()) or 1.0
        shares = {split: share / share_sum for split, share in shares.items()}
    counts: dict[Split, int] = {
        "train": round(total * shares["train"]),
        "validation": round(total * shares["validation"]),
    }
    last: Split = "test" if shares["test"] else "train"
    counts["test"] = 0
    counts[last] += total - sum(counts.values())
    return counts


def split_by_fraction(
    task: TaskSpec, pool: QuestionPool, chosen: Sequence[int], seed: int
) -> bytes:
    """Return the index in SPLITS of each chosen question's split, a byte each, after splitting
    whole units: test first, then validation; the rest is train.

    A unit is a group with all groups that ask one of its questions. It goes to a split only if it
    fits, so that sizes are exact wherever some unit is small enough.
    """
    unit = split_units(pool, chosen)
    members = array("i", [0]) * len(unit)
    for number in chosen:
        members[unit[pool.group_of[number]]] += 1
    targets = split_sizes(task, len(chosen), dict.fromkeys(SPLITS, 1))
    train, validation, test = range(len(SPLITS))
    room, split_of = [targets[split] for split in SPLITS], bytearray(len(unit))
    heads = array("i", (group for group, count in enumerate(members) if count))
    for head in seeded_order(seed, "split", heads, pool.groups):
        split = next((index for index in (test, validation) if members[head] <= room[index]), train)
        room[split] -= members[head]
        split_of[head] = split
    return bytes(split_of[unit[pool.group_of[number]]] for number in chosen)


def split_units(pool: QuestionPool, chosen: Sequence[int]) -> array[int]:
    """Return the unit of each group, by group number: the number of the first group by name among
    those linked by questions with the same words, directly or through others.

    Only links of chosen questions count; a group without one is a unit of its own.
    """
    unit = array("i", range(len(pool.groups)))

    def find_head(group: int) -> int:
        while unit[group] != group:
            unit[group] = unit[unit[group]]
            group = unit[group]
        return group

    first = array("i", [-1]) * len(pool.words)
    """The first group that asks a question with these words."""
    for number in chosen:
        group, words = pool.group_of[number], pool.words_of[number]
        if first[words] < 0:
            first[words] = group
        elif (left := find_head(first[words])) != (other := find_head(group)):
            low, high = sorted((left, other), key=pool.groups.__getitem__)
            unit[high] = low
    for group in range(len(unit)):
        unit[group] = find_head(group)
    return unit


class DrawnExamples(LazySequence[Example]):
    """A fixed number of examples in the order of a draw, added in any order: memory holds 4 bytes
    of each."""

    def __init__(self, count: int) -> None:
        self._added = array("i", [0]) * count
        """When each example was added, as a position among the records."""
        self._records = SpilledPieces()

    def add(self, at: int, example: Example) -> None:
        """Add the example at index `at` of the draw."""
        self._added[at] = len(self._records)
        self._records.add(example.model_dump_json().encode())

    def __len__(self) -> int:
        return len(self._added)

    def _make_item(self, at: int) -> Example:
        return Example.model_validate_json(self._records[self._added[at]])


class QuestionPool:
    """Questions with distinct keys, numbered in the order of their rows."""

    def __init__(self) -> None:
        self.keys, self.groups, self.words = NameNumbers(), NameNumbers(), NameNumbers()
        """Their names; `words` are digests of what is asked."""
        self.group_of, self.words_of = array("i"), array("i")
        """Numbers of each question's group and of its words."""
        self.split_of = bytearray()
        """Index in SPLITS of each question's own split."""
        self.lacks_split = False
        """Whether some row names no split."""
        self.unknown_split: TaskQuestion | None = None
        """The first question whose row names no split, or an unknown one."""

    def add(self, item: TaskQuestion) -> int:
        """Add a question unless its key is present; return the number of its key."""
        number = self.keys.number_of(item.key)
        if number == len(self):
            self.group_of.append(self.groups.number_of(item.group))
            self.words_of.append(self.words.number_of(text_digest(question_words(item)).hex()))
            self.split_of.append(self._split_index(item))
        return number

    def _split_index(self, item: TaskQuestion) -> int:
        if item.split in SPLIT_NAMES:
            return SPLITS.index(SPLIT_NAMES[item.split])
        self.lacks_split = self.lacks_split or item.split is None
        self.unknown_split = self.unknown_split or item
        return 0

    def __len__(self) -> int:
        return len(self.split_of)


def text_digest(text: str) -> bytes:
    """Return a digest of a text, 16 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


HELD_OUT_REASON = "also asked in the source's held-out rows"
"""Why a question of an official train (or validation) file is left out."""


def choose_questions(
    task: TaskSpec, pool: QuestionPool, seed: int, rejected: Counter[str]
) -> tuple[Sequence[int], bytes]:
    """Return (numbers of the drawn questions in the seeded order, index in SPLITS of each one's
    split, a byte each).

    Questions left out because a split held out more asks them too are counted in `rejected`, which
    is changed. Raise DataError if there are fewer questions than `sample.count`, in all or of an
    official split, or for an unknown split.
    """
    has_splits = source_has_splits(task, pool)
    official = has_splits and task.sample.split == "official"
    among = _without_held_out(pool, rejected) if official else range(len(pool))
    ordered = seeded_order(seed, "draw", among, pool.keys)
    _check_count(task, len(ordered))
    if official:
        chosen = _draw_official(task, ordered, pool.split_of)
    else:
        chosen = ordered if task.sample.count == "all" else ordered[: task.sample.count]
    if has_splits:
        return chosen, bytes(pool.split_of[number] for number in chosen)
    return chosen, split_by_fraction(task, pool, chosen, seed)


def source_has_splits(task: TaskSpec, pool: QuestionPool) -> bool:
    """Return whether the source's own splits are used; else questions are split by fractions.

    With `official`, fractions are used if some row names no split or all rows are of one, as in a
    local copy of one file. Raise DataError, unless fractions are used, for a row with an unknown
    split, or with `rows` for one that names none.
    """
    how = task.sample.split
    if how == "fraction" or (how == "official" and pool.lacks_split):
        return False
    if pool.unknown_split is not None:
        raise DataError(
            f"task {task.name}: rows.split: found {pool.unknown_split.split!r} for "
            f"{pool.unknown_split.key!r}; "
            f"expected one of {sorted(SPLIT_NAMES)}"
        )
    return how == "rows" or len(set(pool.split_of)) > 1


def _without_held_out(pool: QuestionPool, rejected: Counter[str]) -> array[int]:
    """Return the questions that the source does not also ask in a split held out more."""
    held = bytearray(len(pool.words))
    """The split held out most that asks a question with these words."""
    for words, split in zip(pool.words_of, pool.split_of, strict=True):
        held[words] = max(held[words], split)
    apart = array(
        "i",
        (
            number
            for number, words in enumerate(pool.words_of)
            if pool.split_of[number] == held[words]
        ),
    )
    if len(apart) < len(pool):
        rejected[HELD_OUT_REASON] += len(pool) - len(apart)
    return apart


def _check_count(task: TaskSpec, available: int) -> None:
    count = task.sample.count
    if count != "all" and count > available:
        raise DataError(
            f"task {task.name}: found {available} questions; expected at least {count}. "
            f"Use all of them with --tasks all, or fewer with --tasks {available}"
        )


def _draw_official(task: TaskSpec, ordered: array[int], split_of: Sequence[int]) -> array[int]:
    """Return the first questions of each official split, as many as the task's shares say. Raises
    DataError if a split has too few."""
    if task.sample.count == "all":
        return ordered
    available = Counter(SPLITS[split_of[number]] for number in ordered)
    room = split_sizes(task, task.sample.count, available)
    for split in SPLITS:
        if room[split] > available[split]:
            raise DataError(
                f"task {task.name}: found {available[split]} questions of split {split}; expected "
                f"{room[split]} of {task.sample.count}. Use all of them with --tasks all, or "
                "other shares with --set task.sample.train=SHARE"
            )
    chosen = array("i")
    for number in ordered:
        split = SPLITS[split_of[number]]
        if room[split] > 0:
            room[split] -= 1
            chosen.append(number)
    return chosen


def example_of(task: TaskSpec, item: TaskQuestion, split: Split) -> Example:
    """Return the question as an example of the task in this split."""
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
