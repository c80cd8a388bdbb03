"""Means with their standard errors, paired differences, McNemar's test, Holm's correction, shares,
and Student's t from its definition.

Jackknife over groups, for statistics that are functions of sums.

A statistic of additive moments (counts, sums, sums of products) is computed without each group in
turn; its variance is (G - 1) / G times the squared deviations from their mean (Efron and
Tibshirani 1993, section 11.5; for regressions this is CR3 clustering but for the centre).
Intervals use Student's t with G - 1 degrees of freedom.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

from convbench.util.words import ErrorKind as ErrorKind

TINY = 1e-300


def t_two_sided(t: float, df: float) -> float:
    """Return P(|T| >= |t|) for Student's t with `df` degrees of freedom; 0 for an infinite t
    and 1 for NaN.

    It is I_x(df/2, 1/2) at x = df / (df + t^2), the regularised incomplete beta function.
    """
    return 1.0 if math.isnan(t) else beta_inc(df / 2, 0.5, df / (df + t * t))


@lru_cache(1024)
def t_critical(df: float, level: float = 0.95) -> float:
    """Return the t whose interval [-t, t] holds `level` of Student's t; by bisection."""
    low, high = 0.0, 2.0
    while t_two_sided(high, df) > 1 - level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, df) > 1 - level else (low, middle)
    return (low + high) / 2


def beta_inc(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1]."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - math.exp(log_front) * _continued_fraction(b, a, 1 - x) / b
    return math.exp(log_front) * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function (Lentz's method)."""
    c, d = 1.0, 1 / _avoid_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _avoid_zero(1 + term * d)
            c = _avoid_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _avoid_zero(value: float) -> float:
    """Return a value, or TINY in place of one too close to 0 to divide by."""
    return value if abs(value) > TINY else TINY


def sign_test(first: int, second: int) -> float:
    """Return the exact two-sided p of a sign test with these two counts; 1 if both are 0."""
    thrown = first + second
    tail = sum(math.comb(thrown, k) for k in range(min(first, second) + 1))
    return min(1.0, 2 * tail / (1 << thrown))


FEW = 4096
"""Fewer numbers than this are added up or ranked without loading numpy."""
LEVEL = 0.95
"""Level of all intervals."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over conversations with its standard error."""

    mean: float
    error: float | None
    """Standard error; None with fewer than two independent units."""
    n: int
    """Number of conversations."""
    groups: int
    """Number of groups that the conversations belong to."""
    df: int
    """Degrees of freedom of the interval: groups - 1, or n - 1 if the error is naive."""

    @property
    def margin(self) -> float | None:
        """Half the width of the 95% interval; None without a standard error."""
        return None if self.error is None else t_critical(self.df, LEVEL) * self.error

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval; None without a standard error."""
        margin = self.margin
        return None if margin is None else (self.mean - margin, self.mean + margin)

    @property
    def p(self) -> float | None:
        """Two-sided p of the hypothesis that the mean is 0; 0 if only the error is 0.

        None without a standard error, or if mean and error are both 0.
        """
        if self.error is None or (self.error == 0 and self.mean == 0):
            return None
        return t_two_sided(self.mean / self.error if self.error else math.inf, self.df)


def interval_side(span: tuple[float, float] | None, of: float = 0.0) -> int:
    """Return 1 if an interval lies above the value `of`, -1 if below, 0 if it contains the value or
    is None."""
    return 0 if span is None else (span[0] > of) - (span[1] < of)


def estimate_mean(
    pairs: Iterable[tuple[Hashable, float]], kind: ErrorKind = "clustered"
) -> Estimate | None:
    """Return the mean of (group, value) pairs with its standard error; None without pairs.

    The error is clustered by group with groups - 1 degrees of freedom, or for `naive` that of
    independent values with n - 1. It is None below 1 degree of freedom, and exactly 0 if it is only
    rounding. The order of the pairs does not matter.
    """
    units, values = array("q"), array("d")
    for group, value in pairs:
        units.append(hash(group))
        values.append(value)
    if not values:
        return None
    n = len(values)
    mean = math.fsum(values) / n
    groups, squares = _group_squares(units, values, mean)
    df = (groups if kind == "clustered" else n) - 1
    if df < 1:
        return Estimate(mean, None, n, groups, df)
    if kind == "naive":
        error = math.sqrt(math.fsum((value - mean) ** 2 for value in values)) / n
    else:
        return estimate_of_groups(mean, n, groups, squares)
    return Estimate(mean, zero_if_rounding(error, mean), n, groups, df)


def estimate_of_groups(mean: float, n: int, groups: int, squares: float) -> Estimate:
    """Return the clustered estimate from sums; its error is None with fewer than two groups.

    `squares` is the sum over groups of the squared sum of deviations from the mean, sum_g e_g^2;
    `n` counts the values.
    """
    df = groups - 1
    if df < 1:
        return Estimate(mean, None, n, groups, df)
    return Estimate(
        mean, zero_if_rounding(math.sqrt(groups / df * squares) / n, mean), n, groups, df
    )


def effective_count(weights: Iterable[float]) -> float:
    """Return Kish's effective number of values with these weights, (sum w)^2 / sum w^2. Raise
    ZeroDivisionError if all weights are 0, or without any."""
    held = list(weights)
    return math.fsum(held) ** 2 / math.fsum(weight * weight for weight in held)


def zero_if_rounding(error: float, mean: float) -> float:
    """Return the error, or 0 if it is only rounding: equal values must have an error of 0."""
    return 0.0 if error < 1e-12 * max(1.0, abs(mean)) else error


def _group_squares(units: array[int], values: array[float], mean: float) -> tuple[int, float]:
    """Return (number of groups, sum over groups of the squared sum of deviations from the mean)."""
    sums = _group_sums(units, values, mean)
    return len(sums), math.fsum(group_sum**2 for group_sum in sums)


def _group_sums(units: array[int], values: array[float], mean: float) -> list[float]:
    """Return each group's sum of deviations from the mean."""
    if len(units) < FEW:
        apart: dict[int, list[float]] = {}
        for unit, value in zip(units, values, strict=True):
            apart.setdefault(unit, []).append(value - mean)
        return list(map(math.fsum, apart.values()))
    import numpy as np

    _, index = np.unique(np.asarray(units), return_inverse=True)
    sums: list[float] = np.bincount(index, np.asarray(values) - mean).tolist()
    return sums


def estimate_at_size(estimate: Estimate | None, n: int) -> Estimate | None:
    """Return the estimate with the error that `n` conversations of the same variance would have.

    The error is multiplied by sqrt(estimate.n / n) and the degrees of freedom are n - 1; mean, `n`
    and `groups` stay those of the estimate. It is returned unchanged if it is None, has no error,
    or is over at most `n` conversations.
    """
    if estimate is None or estimate.error is None or estimate.n <= n:
        return estimate
    return replace(estimate, error=estimate.error * math.sqrt(estimate.n / n), df=n - 1)


@dataclass(frozen=True, slots=True)
class McNemar:
    """Counts of McNemar's test of two policies on the same conversations."""

    n: int
    """Number of pairs."""
    only_first: int
    """Pairs in which only the first (Base) is right."""
    only_second: int
    """Pairs in which only the second is right."""

    @property
    def p(self) -> float:
        """Exact two-sided p of a sign test on the discordant pairs; 1 without any."""
        return sign_test(self.only_first, self.only_second)


def mcnemar(pairs: Iterable[tuple[bool, bool]]) -> McNemar:
    """Return the counts of (first is right, second is right) pairs."""
    outcomes = list(pairs)
    return McNemar(
        len(outcomes),
        sum(first and not second for first, second in outcomes),
        sum(second and not first for first, second in outcomes),
    )


def holm_adjusted(p: Sequence[float | None]) -> list[float | None]:
    """Return Holm's adjusted p values, in the order of `p`; None stays None and does not count.

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


def share_interval(estimate: Estimate) -> tuple[float, float] | None:
    """Return the 95% interval of a mean of zeros and ones, on the logit scale, within 0 to 1.

    With a mean of 0 return (0, e), with a mean of 1 (1 - e, 1), with e = t^2 / (groups + t^2). With
    another mean and an error of 0, both ends are the mean. Return None without a standard error.
    """
    if estimate.error is None:
        return None
    p, t = estimate.mean, t_critical(estimate.df, LEVEL)
    if 0 < p < 1:
        odds, margin = math.log(p / (1 - p)), t * estimate.error / (p * (1 - p))
        return inverse_logit(odds - margin), inverse_logit(odds + margin)
    end = t * t / estimate.groups / (1 + t * t / estimate.groups)
    return (1 - end, 1.0) if p > 0.5 else (0.0, end)


def inverse_logit(odds: float) -> float:
    """Return the probability of these log odds, 0 below -700."""
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


@dataclass(frozen=True, slots=True)
class ConstantAnswer:
    """Scores of answers that always return one constant: a floor for the scores of a judge."""

    name: str
    """The constant with the best mean score over all tasks, as a Python literal."""
    score: float
    """Its mean score."""
    each: float
    """Mean over tasks of the score of the best constant for each task."""
    tasks: int

    def __str__(self) -> str:
        return (
            f"constant answers score {self.score:.3f} (the best constant for all {self.tasks} "
            f"tasks, {self.name}) and {self.each:.3f} (the best for each task)"
        )


def constant_answer(
    verdicts: Iterable[tuple[str, Mapping[str, float], Mapping[str, Any]]],
) -> ConstantAnswer | None:
    """Return the best constants over tasks, from (task, scores, details) of verdicts.

    Only verdicts with the score `constant` and a mapping `constants` in their details count, and of
    each task only the first. `constants` maps a constant to its score on the task. Return None if
    no verdict counts.
    """
    best: dict[str, float] = {}
    totals: dict[str, float] = {"None": 0.0}
    for task, scores, details in verdicts:
        shares = details.get("constants")
        if task in best or "constant" not in scores or not isinstance(shares, Mapping):
            continue
        best[task] = scores["constant"]
        for name, share in shares.items():
            totals[name] = totals.get(name, 0.0) + (share if isinstance(share, float) else 0.0)
    if not best:
        return None
    name = max(totals, key=totals.__getitem__)
    each = math.fsum(best.values()) / len(best)
    return ConstantAnswer(name, totals[name] / len(best), each, len(best))


Moments = Sequence[float]


def jackknife(
    rows: Iterable[tuple[Hashable, Moments]], statistic: Callable[[Moments], float | None]
) -> Estimate | None:
    """Return a statistic of the summed (group, moments) with its jackknife error over groups.

    `n` counts rows; the degrees of freedom are groups - 1. Return None without rows, or if the
    statistic of all groups is None. The error is None with fewer than three groups, or if the
    statistic is None when some group is left out.
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
