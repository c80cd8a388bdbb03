"""The ratio of two means that are measured on the same units, with Fieller's interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from convbench.stats.estimate import LEVEL
from convbench.stats.special import t_critical


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of means and its 95% interval."""

    value: float | None
    """None where the lower mean is 0."""
    interval: tuple[float, float] | None
    """None where it has no end: the lower mean cannot be told from 0."""
    n: int
    """Units."""
    groups: int


def ratio(values: Iterable[tuple[str, float, float]]) -> Ratio | None:
    """Return mean(upper) / mean(lower) of (group, upper, lower); None where there are none.

    Fieller (1954): the interval holds each r for which mean(upper) - r mean(lower) cannot be told
    from 0 by Student's t over groups, with the clustered variances of `estimate`.
    """
    found = list(values)
    if not found:
        return None
    n = len(found)
    upper, lower = math.fsum(x for _, x, _ in found) / n, math.fsum(y for *_, y in found) / n
    apart: dict[str, tuple[float, float]] = {}
    for group, x, y in found:
        a, b = apart.get(group, (0.0, 0.0))
        apart[group] = (a + x - upper, b + y - lower)
    groups = len(apart)
    value = upper / lower if lower else None
    if groups < 2:
        return Ratio(value, None, n, groups)
    factor = groups / (groups - 1) / n**2 * t_critical(groups - 1, LEVEL) ** 2
    above, below, both = (
        factor * math.fsum(one[i] * one[j] for one in apart.values())
        for i, j in ((0, 0), (1, 1), (0, 1))
    )
    # (lower^2 - below) r^2 - 2 (upper lower - both) r + (upper^2 - above) <= 0
    square, middle = lower**2 - below, upper * lower - both
    inside = middle**2 - square * (upper**2 - above)
    if square <= 0 or inside < 0:
        return Ratio(value, None, n, groups)
    wide = math.sqrt(inside)
    return Ratio(value, ((middle - wide) / square, (middle + wide) / square), n, groups)
