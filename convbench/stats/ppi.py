"""Prediction-powered means: a judge scored every conversation and people some of them.

Also a ratio of means, and a test whether the judge's bias is the same on another policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from convbench.stats.means import (
    LEVEL,
    Estimate,
    effective_count,
    estimate_mean,
    t_critical,
    zero_if_rounding,
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of means and its 95% interval."""

    value: float | None
    """None if the lower mean is 0."""
    interval: tuple[float, float] | None
    """None with fewer than two groups, or if it is unbounded: the lower mean does not differ
    significantly from 0."""
    n: int
    """Number of values."""
    groups: int


def ratio_of_means(values: Iterable[tuple[str, float, float]]) -> Ratio | None:
    """Return mean(upper) / mean(lower) of (group, upper, lower) values; None without values.

    Fieller (1954): the 95% interval holds each r for which mean(upper) - r mean(lower) does not
    differ from 0 by Student's t over groups, with clustered variances. It is None with fewer than
    two groups, or if it is unbounded. `value` is None if the lower mean is 0.
    """
    rows = list(values)
    if not rows:
        return None
    n = len(rows)
    upper, lower = math.fsum(x for _, x, _ in rows) / n, math.fsum(y for *_, y in rows) / n
    apart: dict[str, tuple[float, float]] = {}
    for group, x, y in rows:
        a, b = apart.get(group, (0.0, 0.0))
        apart[group] = (a + x - upper, b + y - lower)
    groups = len(apart)
    value = upper / lower if lower else None
    if groups < 2:
        return Ratio(value, None, n, groups)
    factor = groups / (groups - 1) / n**2 * t_critical(groups - 1, LEVEL) ** 2
    above, below, both = (
        factor * math.fsum(deviation[i] * deviation[j] for deviation in apart.values())
        for i, j in ((0, 0), (1, 1), (0, 1))
    )
    # (lower^2 - below) r^2 - 2 (upper lower - both) r + (upper^2 - above) <= 0
    square, middle = lower**2 - below, upper * lower - both
    inside = middle**2 - square * (upper**2 - above)
    if square <= 0 or inside < 0:
        return Ratio(value, None, n, groups)
    wide = math.sqrt(inside)
    return Ratio(value, ((middle - wide) / square, (middle + wide) / square), n, groups)


FEW = 40
"""Labels below which intervals are too narrow: they cover 93 % instead of 95 at 30 labels."""


@dataclass(frozen=True, slots=True)
class ScoredUnit:
    """One conversation with the judge's score and, if it was labelled, people's."""

    group: str
    judge: float
    gold: float | None = None
    """Mean score of people; None without a label."""
    weight: float = 1.0
    """Inverse of the probability that it was drawn, up to a factor; used only with a label."""

    @property
    def is_labelled(self) -> bool:
        """Whether it has a label with a positive weight."""
        return self.gold is not None and self.weight > 0


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """A mean of gold scores, corrected by labels."""

    estimate: Estimate
    """The corrected mean; `n` counts labels, `groups` those that have one."""
    raw: Estimate
    """Mean of the judge's scores over all conversations."""
    people: Estimate
    """Weighted mean of the labels alone."""
    bias: Estimate
    """Mean of judge minus people, over the labelled conversations."""
    power: float
    """The tuning parameter lambda: the weight of the judge's scores."""

    @property
    def labels_saved(self) -> float | None:
        """How many more labels the labels alone would need for an interval as narrow; negative if
        fewer.

        None if the labels alone have no standard error, or if that of the corrected mean is 0.
        """
        mine, alone = self.estimate.error, self.people.error
        if not mine or alone is None:
            return None
        return self.estimate.n * ((alone / mine) ** 2 - 1)


def corrected_mean(units: Iterable[ScoredUnit]) -> CorrectedMean | None:
    """Return the prediction-powered mean; None with fewer than three labelled groups."""
    terms = _PolicyTerms.of_units(list(units))
    if terms is None:
        return None
    power = terms.best_power()
    gold = [u for u in terms.units if u.is_labelled]
    people = [ScoredUnit(u.group, 0.0, u.gold, u.weight) for u in gold]
    raw = estimate_mean((u.group, u.judge) for u in terms.units)
    assert raw is not None
    return CorrectedMean(
        Estimate(
            terms.mean + power * terms.shift,
            terms.standard_error(power),
            terms.labels,
            terms.groups,
            terms.df,
        ),
        raw,
        weighted_mean(people),
        weighted_mean(bias_units(gold)),
        power,
    )


def weighted_mean(units: Sequence[ScoredUnit]) -> Estimate:
    """Return the weighted mean of the labels; units without one are ignored.

    `n` counts labels and `groups` their groups; the error is None with a single group. Raise
    ValueError without a label.
    """
    terms = _PolicyTerms.of_units(units, least=1)
    if terms is None:
        raise ValueError("found no label; expected some")
    error = terms.standard_error(0.0, fitted=1) if terms.groups > 1 else None
    return Estimate(terms.mean, error, terms.labels, terms.groups, terms.df)


def corrected_difference(
    first: Iterable[ScoredUnit], second: Iterable[ScoredUnit], *, tuned: bool = True
) -> Estimate | None:
    """Return the corrected mean of the second policy minus that of the first.

    `n` counts the labels of both; `groups` and the degrees of freedom are the smaller of the two.
    Without `tuned` the labels are used alone. Return None if either policy has labels in fewer than
    three groups.
    """
    first_terms, second_terms = (
        _PolicyTerms.of_units(list(first)),
        _PolicyTerms.of_units(list(second)),
    )
    if first_terms is None or second_terms is None:
        return None
    a, b, s = (
        first_terms.linear_terms(2),
        second_terms.linear_terms(2),
        dict.fromkeys((*first_terms.names, *second_terms.names), 0.0),
    )
    fixed = {g: b.fixed.get(g, 0.0) - a.fixed.get(g, 0.0) for g in s}
    slopes = (
        {g: -a.slope.get(g, 0.0) for g in s},
        {g: b.slope.get(g, 0.0) for g in s},
    )
    lam = _least_squares(fixed, slopes) if tuned else (0.0, 0.0)
    total = math.fsum((fixed[g] + lam[0] * slopes[0][g] + lam[1] * slopes[1][g]) ** 2 for g in s)
    mean = (second_terms.mean + lam[1] * second_terms.shift) - (
        first_terms.mean + lam[0] * first_terms.shift
    )
    labels, groups = (
        first_terms.labels + second_terms.labels,
        min(first_terms.groups, second_terms.groups),
    )
    return Estimate(
        mean,
        zero_if_rounding(math.sqrt(total), mean),
        labels,
        groups,
        min(first_terms.df, second_terms.df),
    )


@dataclass(frozen=True, slots=True)
class _LinearTerms:
    """Linearised terms by group, as functions of lambda: fixed + lambda * slope."""

    fixed: dict[str, float]
    slope: dict[str, float]


@dataclass(frozen=True, slots=True)
class _PolicyTerms:
    """Sums of one policy's labels and scores that the estimators use."""

    units: Sequence[ScoredUnit]
    mean: float
    """Weighted mean of the labels."""
    shift: float
    """Mean of the judge's scores over all minus its weighted mean over the labelled."""
    labels: int
    groups: int
    """Number of groups that have a label."""
    effective_groups: float
    """Kish's effective number of labelled groups."""
    names: tuple[str, ...]
    """All groups."""

    @property
    def df(self) -> int:
        """Degrees of freedom."""
        return max(1, round(self.effective_groups) - 1) if self.groups > 1 else 0

    @classmethod
    def of_units(cls, units: Sequence[ScoredUnit], least: int = 3) -> _PolicyTerms | None:
        """Return the sums; None with fewer than `least` labelled groups."""
        gold = [u for u in units if u.is_labelled]
        groups = len({u.group for u in gold})
        if not gold or groups < least:
            return None
        total = math.fsum(u.weight for u in gold)
        mean = math.fsum(u.weight * (u.gold or 0.0) for u in gold) / total
        weights: dict[str, float] = {}
        for u in gold:
            weights[u.group] = weights.get(u.group, 0.0) + u.weight
        effective = effective_count(weights.values())
        above = math.fsum(u.judge for u in units) / len(units)
        shift = above - math.fsum(u.weight * u.judge for u in gold) / total
        names = tuple(dict.fromkeys(u.group for u in units))
        return cls(units, mean, shift, len(gold), groups, effective, names)

    def linear_terms(self, fitted: int) -> _LinearTerms:
        """Return the linearised terms by group. `fitted` parameters were estimated from the labels,
        which widens their terms."""
        n, every = len(self.units), len(self.names)
        above = math.fsum(u.judge for u in self.units) / n
        judge_on_labelled = above - self.shift
        total = math.fsum(u.weight for u in self.units if u.is_labelled)
        tuned = math.sqrt(self.effective_groups / max(1.0, self.effective_groups - fitted + 1))
        shares: dict[str, float] = {}
        for u in self.units:
            if u.is_labelled:
                shares[u.group] = shares.get(u.group, 0.0) + u.weight / total
        small = {g: tuned / max(1e-3, 1 - share) for g, share in shares.items()}
        large = math.sqrt(every / max(1, every - 1))
        fixed = dict.fromkeys(self.names, 0.0)
        slope = dict.fromkeys(self.names, 0.0)
        for u in self.units:
            slope[u.group] += large * (u.judge - above) / n
            if u.is_labelled and u.gold is not None:
                fixed[u.group] += small[u.group] * u.weight / total * (u.gold - self.mean)
                slope[u.group] -= small[u.group] * u.weight / total * (u.judge - judge_on_labelled)
        return _LinearTerms(fixed, slope)

    def best_power(self) -> float:
        """Return the lambda with the smallest standard error."""
        sums = self.linear_terms(2)
        return _least_squares(sums.fixed, (sums.slope,))[0]

    def standard_error(self, power: float, fitted: int = 2) -> float:
        """Return the standard error of the mean at this lambda."""
        sums = self.linear_terms(fitted)
        squares = ((sums.fixed[g] + power * sums.slope[g]) ** 2 for g in self.names)
        return zero_if_rounding(math.sqrt(math.fsum(squares)), self.mean)


def _least_squares(
    fixed: dict[str, float], slopes: Sequence[dict[str, float]]
) -> tuple[float, ...]:
    """Return the factors of one or two slopes that minimise the sum of squares of fixed + slopes; 0
    for a slope that is zero, or collinear with the other."""

    def inner_product(first: dict[str, float], second: dict[str, float]) -> float:
        return math.fsum(first[g] * second[g] for g in fixed)

    if len(slopes) == 1:
        square = inner_product(slopes[0], slopes[0])
        return (-inner_product(fixed, slopes[0]) / square if square > 1e-24 else 0.0,)
    a, b = slopes
    aa, bb, ab = inner_product(a, a), inner_product(b, b), inner_product(a, b)
    fa, fb = inner_product(fixed, a), inner_product(fixed, b)
    size = aa * bb - ab * ab
    if size <= 1e-9 * aa * bb or not aa or not bb:
        return (0.0, -fb / bb) if bb > 1e-24 else (-fa / aa if aa > 1e-24 else 0.0, 0.0)
    return (-(fa * bb - fb * ab) / size, -(fb * aa - fa * ab) / size)


Passed = Literal["PASS", "FAIL", "UNKNOWN"]
MARGIN = 0.05
"""Largest difference of biases that counts as equal, as a share of the judge's scale."""
PROBE = 10
"""Fewest labels of a policy with which its bias is tested."""
BEYOND = 0.05
"""Largest accepted share of scores outside the range of the labelled ones."""


@dataclass(frozen=True, slots=True)
class TransportResult:
    """Result of the test whether a judge's bias carries over to another policy."""

    passed: Passed
    why: str
    apart: Estimate | None = None
    """The second policy's bias minus the first's; None if it was not measured."""


def check_transport(
    labelled: Sequence[ScoredUnit],
    other: Sequence[ScoredUnit],
    scale: float,
    margin: float = MARGIN,
) -> TransportResult:
    """Return whether the judge's bias on the labelled policy holds for the other policy too.

    `scale` is the width of the judge's scale; `margin` times it is the largest difference that
    counts as equal. PASS if the 95% interval of the difference lies within it; FAIL if the interval
    exceeds it and excludes 0. With fewer than 10 labels of the first policy UNKNOWN; with fewer
    than 10, or three groups, of the other one FAIL if over 5% of its scores lie beyond the labelled
    ones, else UNKNOWN.
    """
    gold, probe = [u for u in labelled if u.is_labelled], [u for u in other if u.is_labelled]
    apart = corrected_difference(bias_units(gold), bias_units(probe), tuned=False)
    if len(gold) < PROBE:
        why = f"{len(gold)} labels of the first policy, fewer than {PROBE}"
        return TransportResult("UNKNOWN", why, apart)
    if apart is None or len(probe) < PROBE:
        return _untested_result(gold, probe, other, apart)
    span = apart.interval
    if span is None:
        return TransportResult("UNKNOWN", "all labels are of one group", apart)
    if max(abs(span[0]), abs(span[1])) <= margin * scale:
        return TransportResult("PASS", "the bias is the same within the margin", apart)
    if span[0] > 0 or span[1] < 0:
        return TransportResult("FAIL", "the judge's bias differs between the policies", apart)
    why = "too few labels to decide whether the bias is the same"
    return TransportResult("UNKNOWN", why, apart)


def _untested_result(
    gold: Sequence[ScoredUnit],
    probe: Sequence[ScoredUnit],
    other: Sequence[ScoredUnit],
    apart: Estimate | None,
) -> TransportResult:
    """Return the result without enough labels of the other policy: FAIL if its scores lie beyond
    the labelled ones, else UNKNOWN."""
    low, high = min(u.judge for u in gold), max(u.judge for u in gold)
    beyond = sum(not low <= u.judge <= high for u in other) / max(1, len(other))
    if beyond > BEYOND:
        why = (
            f"{beyond:.0%} of the other policy's scores are outside the range of the labelled ones"
        )
        return TransportResult("FAIL", why, apart)
    why = f"{len(probe)} labels of the other policy; its bias is tested from {PROBE}"
    return TransportResult("UNKNOWN", why, apart)


def have_enough_labels(first: Sequence[ScoredUnit], second: Sequence[ScoredUnit]) -> bool:
    """Return whether both policies have 40 labels (FEW), to be corrected each by its own."""
    return min(sum(u.is_labelled for u in units) for units in (first, second)) >= FEW


def bias_units(units: Sequence[ScoredUnit]) -> list[ScoredUnit]:
    """Return the labelled units, with the judge's score minus people's as their label."""
    return [
        ScoredUnit(u.group, 0.0, u.judge - u.gold, u.weight)
        for u in units
        if u.is_labelled and u.gold is not None
    ]
