"""Jackknife over groups, for statistics that are functions of sums.

A statistic of additive moments (counts, sums, sums of products) is computed without each group in
turn; its variance is (G - 1) / G times the squared deviations from their mean (Efron and Tibshirani
1993, section 11.5; for regressions this is CR3 clustering but for the centre). Intervals use
Student's t with G - 1 degrees of freedom.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence

from convbench.stats.means import Estimate

Moments = Sequence[float]


def jackknife(
    rows: Iterable[tuple[Hashable, Moments]], statistic: Callable[[Moments], float | None]
) -> Estimate | None:
    """Return a statistic of the summed (group, moments) with its jackknife error over groups.

    None if the statistic of all groups is None. The error is None with fewer than three groups, or
    if the statistic is None when some group is left out.
    """
    sums: dict[Hashable, list[float]] = {}
    count = 0
    for group, moments in rows:
        count += 1
        into = sums.setdefault(group, [0.0] * len(moments))
        for index, value in enumerate(moments):
            into[index] += value
    if not count:
        return None
    total = [math.fsum(column) for column in zip(*sums.values(), strict=True)]
    full_value, groups = statistic(total), len(sums)
    if full_value is None:
        return None
    left = array("d")
    for part in sums.values():
        without = statistic([a - b for a, b in zip(total, part, strict=True)])
        if without is not None:
            left.append(without)
    if groups < 3 or len(left) < groups:
        return Estimate(full_value, None, count, groups, groups - 1)
    mean = math.fsum(left) / groups
    error = math.sqrt(
        (groups - 1) / groups * math.fsum((replicate - mean) ** 2 for replicate in left)
    )
    return Estimate(full_value, error, count, groups, groups - 1)
