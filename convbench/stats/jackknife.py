"""Intervals of what is made of sums: leave out one group at a time.

A statistic of additive moments (counts, sums, sums of products) is computed without each group in
turn; its variance is (G - 1) / G times the squared deviations from their mean (Efron and Tibshirani
1993, section 11.5; for regressions this is CR3 clustering but for the centre). Intervals use
Student's t with G - 1 degrees of freedom.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from convbench.stats.columns import Column, parts_of, places_in
from convbench.stats.estimate import Estimate

Moments = Sequence[float]


def jackknife(
    rows: Iterable[tuple[Hashable, Moments]], statistic: Callable[[Moments], float | None]
) -> Estimate | None:
    """Return a statistic of the sums of (group, moments) with its error over groups.

    None where the statistic is None of all of them; without an error where there are fewer than
    three groups, or it is None without one of them.
    """
    names, columns = Column(array("q")), list[Column[float]]()
    for group, moments in rows:
        names.append(hash(group))
        columns += [Column(array("d")) for _ in moments[len(columns) :]]
        for column, value in zip(columns, moments, strict=True):
            column.append(value)
    if not len(names):
        return None
    sums = [Column(array("d")) for _ in columns]
    for group_sums in _sums(names, columns):
        for column, value in zip(sums, group_sums, strict=True):
            column.append(value)
    total = [math.fsum(column) for column in sums]
    whole, count, groups = statistic(total), len(names), len(sums[0])
    if whole is None:
        return None
    left = Column(array("d"))
    for part in zip(*sums, strict=True):
        without = statistic([a - b for a, b in zip(total, part, strict=True)])
        if without is not None:
            left.append(without)
    if groups < 3 or len(left) < groups:
        return Estimate(whole, None, count, groups, groups - 1)
    mean = math.fsum(left) / groups
    error = math.sqrt((groups - 1) / groups * math.fsum((one - mean) ** 2 for one in left))
    return Estimate(whole, error, count, groups, groups - 1)


def _sums(names: Column[int], columns: Sequence[Column[float]]) -> Iterator[list[float]]:
    """Yield the sums of each group."""
    parts = parts_of(len(names))
    for number in range(parts):
        sums: dict[int, list[float]] = {}
        for groups, *moments in zip(names.blocks(), *(c.blocks() for c in columns), strict=True):
            for at in places_in(groups, number, parts):
                into = sums.setdefault(groups[at], [0.0] * len(columns))
                for k, block in enumerate(moments):
                    into[k] += block[at]
        yield from sums.values()
