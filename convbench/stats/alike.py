"""How many groups say one thing several times, and nothing else."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable

from convbench.stats.columns import FEW, Column, in_part, parts_of


def alike(pairs: Iterable[tuple[Hashable, Hashable]]) -> int:
    """Return how many groups of (group, value) pairs have several values that are all equal. The
    pairs lie in a file, where there are many."""
    groups, values = Column(array("q")), Column(array("q"))
    for group, value in pairs:
        groups.append(hash(group))
        values.append(hash(value))
    if len(groups) < FEW:
        said: dict[int, list[int]] = {}
        for one, other in zip(groups, values, strict=True):
            said.setdefault(one, []).append(other)
        return sum(len(some) > 1 and len(set(some)) == 1 for some in said.values())
    import numpy as np

    found, parts = 0, parts_of(len(groups))
    for number in range(parts):
        mine, theirs = [], []
        for names, numbers in zip(groups.blocks(), values.blocks(), strict=True):
            inside = in_part(names, number, parts)
            mine.append(np.frombuffer(names, np.int64)[inside])
            theirs.append(np.frombuffer(numbers, np.int64)[inside])
        names_in, said_in = np.concatenate(mine), np.concatenate(theirs)
        order = np.lexsort((said_in, names_in))
        names_in, said_in = names_in[order], said_in[order]
        first = np.flatnonzero(np.append(True, names_in[1:] != names_in[:-1])[: len(names_in)])
        last = np.append(first, len(names_in))[1:] - 1
        found += int(((last > first) & (said_in[first] == said_in[last])).sum())
    return found
