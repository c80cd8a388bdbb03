"""Splits by seeded fractions, of whole units."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from convbench.schema import TaskSpec
from convbench.tasks.found import Found
from convbench.tasks.splits import ORDER, in_order, sizes


def by_fraction(task: TaskSpec, found: Found, chosen: Sequence[int], seed: int) -> bytes:
    """Split whole units: test first, then validation, the rest train. Return, of each question
    chosen, the place of its split in ORDER.

    A unit is a group and all groups that ask one of its questions too. It goes to a split only
    while it fits, so that sizes come out exact wherever some unit is small enough.
    """
    unit = units(found, chosen)
    members = array("i", [0]) * len(unit)
    for number in chosen:
        members[unit[found.group_of[number]]] += 1
    wanted = sizes(task, len(chosen), dict.fromkeys(ORDER, 1))
    train, validation, test = range(len(ORDER))
    room, split_of = [wanted[split] for split in ORDER], bytearray(len(unit))
    heads = array("i", (group for group, count in enumerate(members) if count))
    for head in in_order(seed, "split", heads, found.groups):
        split = next((one for one in (test, validation) if members[head] <= room[one]), train)
        room[split] -= members[head]
        split_of[head] = split
    return bytes(split_of[unit[found.group_of[number]]] for number in chosen)


def units(found: Found, chosen: Sequence[int]) -> array[int]:
    """Return by group the unit it is split with: the first by name of the groups that a question
    of the same words links, directly or through others."""
    unit = array("i", range(len(found.groups)))

    def head(group: int) -> int:
        while unit[group] != group:
            unit[group] = unit[unit[group]]
            group = unit[group]
        return group

    first = array("i", [-1]) * len(found.words)
    """Of each question's words, a group that asks it."""
    for number in chosen:
        group, words = found.group_of[number], found.words_of[number]
        if first[words] < 0:
            first[words] = group
        elif (one := head(first[words])) != (other := head(group)):
            low, high = sorted((one, other), key=found.groups.__getitem__)
            unit[high] = low
    for group in range(len(unit)):
        unit[group] = head(group)
    return unit
