"""Count groups whose values are all the same."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from itertools import groupby


def count_duplicate_groups(pairs: Iterable[tuple[Hashable, Hashable]]) -> int:
    """Return how many groups of (group, value) pairs have two values or more, all of them equal."""
    groups, values = array("q"), array("q")
    for group, value in pairs:
        groups.append(hash(group))
        values.append(hash(value))
    order = array("q", sorted(range(len(groups)), key=groups.__getitem__))
    count = 0
    for _, places in groupby(order, groups.__getitem__):
        group_values = [values[index] for index in places]
        count += len(group_values) > 1 and len(set(group_values)) == 1
    return count
