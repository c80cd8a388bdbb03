"""Means with standard errors, Holm's correction, and Student's t from its definition.

    >>> estimate(["q1", "q1", "q2"], [1.0, 0.0, 1.0])
    Estimate(mean=0.667, error=0.333, n=3, groups=2, df=1)

Conversations about one question (dialogue, passage) are no independent draws, so that errors are
clustered: with e_g the sum of group g's deviations from the mean, the variance of the mean of n
values is G / (G - 1) * sum_g e_g^2 / n^2, and intervals use Student's t with G - 1 degrees of
freedom (Liang and Zeger 1986, with the usual small-sample factor).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

ErrorKind = Literal["clustered", "naive"]
"""Standard errors by group, or of independent conversations as many papers print them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of `n` values in so many groups, with its standard error, None with fewer than two
    independent units, and the degrees of freedom of its interval."""

    mean: float
    error: float | None
    n: int
    groups: int
    df: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95% interval; None without a standard error."""
        if self.error is None or self.df < 1:
            return None
        margin = t_critical(self.df) * self.error
        return self.mean - margin, self.mean + margin

    @property
    def p(self) -> float | None:
        """Return the two-sided p of a mean of 0, None if it is 0 without an error or has none."""
        if self.error is None or self.df < 1 or (self.error == 0 and self.mean == 0):
            return None
        return t_two_sided(self.mean / self.error if self.error else math.inf, self.df)


def estimate(groups: Any, values: Any, kind: ErrorKind = "clustered") -> Estimate | None:
    """Return the mean of values (a sequence or pandas column) with its standard error.

    `groups[i]` is the independent unit of `values[i]`. Missing values do not count; None if none
    is left. A naive error is sqrt(sum (x - mean)^2) / n, for accuracies sqrt(p (1 - p) / n).
    """
    import numpy as np
    import pandas as pd

    column = np.asarray(values, float)
    known = ~np.isnan(column)
    n = int(known.sum())
    if not n:
        return None
    codes, names = pd.factorize(np.asarray(groups, dtype=object)[known])
    mean = math.fsum(column[known]) / n
    deviations = column[known] - mean
    if kind == "naive":
        df, variance = n - 1, float(deviations @ deviations) / n**2
    else:
        sums = np.bincount(codes, deviations)
        df = len(names) - 1
        variance = float(sums @ sums) / n**2 * (len(names) / df if df else 0.0)
    error = math.sqrt(variance)
    if error < 1e-12 * max(1.0, abs(mean)):
        error = 0.0  # equal values: what is left is rounding
    return Estimate(mean, error if df > 0 else None, n, len(names), df)


def holm(p: Sequence[float | None], families: Sequence[str] = ()) -> list[float | None]:
    """Return p values by Holm's method (1979), in their order, within the family of each (default:
    one of all); None stays None and does not count.

    The k-th smallest of m is multiplied by m - k + 1, never below the one before, at most 1.
    """
    adjusted: list[float | None] = [None] * len(p)
    for family in {*families} or {""}:
        own = [k for k in range(len(p)) if not families or families[k] == family]
        order = sorted((value, k) for k in own if (value := p[k]) is not None)
        least = 0.0
        for rank, (value, place) in enumerate(order):
            least = max(least, min(1.0, value * (len(order) - rank)))
            adjusted[place] = least
    return adjusted


def t_two_sided(t: float, df: int) -> float:
    """Return P(|T| >= |t|) for Student's t: the incomplete beta function I_x(df/2, 1/2) at
    x = df / (df + t^2)."""
    x = df / (df + t * t)
    if x >= 1 or x == 0:
        return x
    a = df / 2
    if x > (a + 1) / (a + 2.5):  # the fraction converges fast on the other side only
        return 1 - _incomplete_beta(0.5, a, 1 - x)
    return _incomplete_beta(a, 0.5, x)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by Lentz's evaluation of its
    continued fraction (Press et al. 2007, section 6.4)."""
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            c, d = 1 + term / c, 1 / (1 + term * d)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value


@lru_cache(1024)
def t_critical(df: int) -> float:
    """Return the t whose interval [-t, t] holds 95% of Student's t; by bisection."""
    low, high = 0.0, 13.0  # 12.7 with one degree of freedom
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, df) > 0.05 else (low, middle)
    return (low + high) / 2
