"""Means with their standard errors, paired differences, McNemar's test, Holm's correction.

The estimators, once for all tables, cards, pages and panels:

- The *mean* is over conversations, so that it is the share of conversations that are right.
- `clustered` standard error (Miller, arXiv 2411.00640, "Adding error bars to evals", clustered
  standard errors, with the small-sample factor): e_g is the sum of the deviations from the mean
  in group g; SE = sqrt(G/(G-1) * sum_g e_g^2) / N. Where all groups hold equally many
  conversations this is exactly the standard error of the G group means: averaging within the
  group first. Intervals use Student's t with G-1 degrees of freedom.
- `naive` standard error, as the paper's tables have it: sqrt(mean squared deviation / N), for
  shares sqrt(p(1-p)/N), which treats conversations about one question as independent.
- Paired differences are the same estimators on the differences between two policies'
  conversations about the same question with the same sample number and temperature.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from convbench.stats.special import sign_test, t_critical, t_two_sided

FEW = 4096
"""So many numbers are added up or ranked without loading numpy."""
ErrorKind = Literal["clustered", "naive"]
LEVEL = 0.95
"""Level of all intervals."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over conversations."""

    mean: float
    error: float | None
    """Standard error; None with fewer than two independent units."""
    n: int
    """Conversations."""
    groups: int
    """Groups they are about."""
    df: int
    """Degrees of freedom of the interval: groups - 1, or n - 1 where the error is naive."""

    @property
    def margin(self) -> float | None:
        """Half the width of the 95% interval; None without a standard error."""
        return None if self.error is None else t_critical(self.df, LEVEL) * self.error

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval."""
        margin = self.margin
        return None if margin is None else (self.mean - margin, self.mean + margin)

    @property
    def p(self) -> float | None:
        """Two-sided p of the hypothesis that the mean is 0; None without a standard error, or
        where nothing varies."""
        if self.error is None or (self.error == 0 and self.mean == 0):
            return None
        return t_two_sided(self.mean / self.error if self.error else math.inf, self.df)


def side(span: tuple[float, float] | None, of: float = 0.0) -> int:
    """Return on which side of a value an interval lies: 1 above it, -1 below it, 0 where it holds
    it or there is none."""
    return 0 if span is None else (span[0] > of) - (span[1] < of)


def estimate(
    pairs: Iterable[tuple[Hashable, float]], kind: ErrorKind = "clustered"
) -> Estimate | None:
    """Return the mean of (group, value) pairs, in whatever order; None where there are none."""
    units, values = array("q"), array("d")
    for group, value in pairs:
        units.append(hash(group))
        values.append(value)
    if not values:
        return None
    n = len(values)
    mean = math.fsum(values) / n
    groups, squares = _squares(units, values, mean)
    df = (groups if kind == "clustered" else n) - 1
    if df < 1:
        return Estimate(mean, None, n, groups, df)
    if kind == "naive":
        error = math.sqrt(math.fsum((value - mean) ** 2 for value in values)) / n
    else:
        return of_groups(mean, n, groups, squares)
    return Estimate(mean, _some(error, mean), n, groups, df)


def of_groups(mean: float, n: int, groups: int, squares: float) -> Estimate:
    """Return the clustered estimate of n values in so many groups, where somebody else has added
    them up: `squares` is the sum over the groups of the squared sum of deviations, sum_g e_g^2."""
    df = groups - 1
    if df < 1:
        return Estimate(mean, None, n, groups, df)
    return Estimate(mean, _some(math.sqrt(groups / df * squares) / n, mean), n, groups, df)


def _some(error: float, mean: float) -> float:
    """Sums of rounding errors are no variance: all values equal means an error of 0."""
    return 0.0 if error < 1e-12 * max(1.0, abs(mean)) else error


def _squares(units: array[int], values: array[float], mean: float) -> tuple[int, float]:
    """Return how many groups there are, and the sum over them of each one's squared sum of
    deviations from the mean."""
    sums = _sums(units, values, mean)
    return len(sums), math.fsum(one**2 for one in sums)


def _sums(units: array[int], values: array[float], mean: float) -> list[float]:
    """Return each group's sum of deviations from the mean."""
    if len(units) < FEW:
        apart: dict[int, list[float]] = {}
        for unit, value in zip(units, values, strict=True):
            apart.setdefault(unit, []).append(value - mean)
        return list(map(math.fsum, apart.values()))
    import numpy as np

    _, place = np.unique(np.asarray(units), return_inverse=True)
    sums: list[float] = np.bincount(place, np.asarray(values) - mean).tolist()
    return sums


def over(found: Estimate | None, n: int) -> Estimate | None:
    """Return the estimate with the naive error that n conversations of the same mean and variance
    would have; with the one it has where it is over fewer."""
    if found is None or found.error is None or found.n <= n:
        return found
    return replace(found, error=found.error * math.sqrt(found.n / n), df=n - 1)


@dataclass(frozen=True, slots=True)
class McNemar:
    """Two policies on the same conversations: how often only one of them is right."""

    n: int
    """Pairs."""
    only_first: int
    """Pairs where only the first (Base) is right."""
    only_second: int
    """Pairs where only the second is right."""

    @property
    def p(self) -> float:
        """Exact two-sided p: the discordant pairs as throws of a fair coin."""
        return sign_test(self.only_first, self.only_second)


def mcnemar(pairs: Iterable[tuple[bool, bool]]) -> McNemar:
    """Count (first right, second right) pairs."""
    found = list(pairs)
    return McNemar(
        len(found),
        sum(first and not second for first, second in found),
        sum(second and not first for first, second in found),
    )


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Return Holm's adjusted p values, in the order given; None stays None and does not count.

    The k-th smallest of m is multiplied by m - k + 1, never below the one before, at most 1
    (Holm 1979).
    """
    order = sorted((value, i) for i, value in enumerate(p) if value is not None)
    out: list[float | None] = [None] * len(p)
    least = 0.0
    for k, (value, i) in enumerate(order):
        least = max(least, min(1.0, value * (len(order) - k)))
        out[i] = least
    return out
