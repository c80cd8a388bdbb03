"""Off-policy value of a policy from the log of another, and diagnostics of its importance weights.

A logged conversation i of question x_i has the weight w_i = pi(tau_i | x_i) / pi_0(tau_i | x_i),
a product over the policy's own tokens, since all other speakers are the same under both.

- *SNIPS* (Swaminathan and Joachims 2015, section 4.2): sum w r / sum w, which does not change if
  all weights are scaled.
- *doubly robust* (Dudik et al. 2011, section 2.2, with self-normalised weights): the mean of a
  prediction q plus sum w (r - q) / sum w. Correct if the weights are, whatever q; the better q,
  the narrower. Without a reward model q is the mean reward of the question's other conversations.
- *direct*: the mean of a reward model's predictions on the policy's own conversations.

Standard errors are clustered by question: e_g is group g's term of the linearised estimate, SE =
sqrt(G/(G-1) sum e_g^2). The e_g of a weighted mean are those of a jackknife, divided by 1 minus the
group's share of the weights (times 1 - 1/G), because a mean dominated by few groups is fitted to
them. Intervals use Student's t with (sum W_g)^2 / sum W_g^2 - 1 degrees of freedom, W_g the weight
of group g: the effective number of questions, minus 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from convbench.stats.means import LEVEL, effective_count, estimate_mean, t_critical

LEAST = 30.0
"""Effective questions below which an interval's coverage falls short
(docs/lab/2026-11-22-intervals.md)."""
HEAVY = 0.7
"""Pareto shape of the largest weights above which their mean is unreliable (Vehtari et al. 2024,
section 3.2.4)."""
FAR = 4.0
"""Most standard errors by which the mean weight may differ from 1, its expectation."""


@dataclass(frozen=True, slots=True)
class LoggedReward:
    """One logged conversation."""

    group: str
    """Its question."""
    log_ratio: float
    """log pi - log pi_0 of all of the policy's tokens, nats."""
    reward: float
    predicted: float | None = None
    """A reward model's prediction of its reward; None without one."""


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """An estimated mean reward."""

    mean: float
    error: float | None
    df: float

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval (low, high); None without a standard error, or below 1 degree of
        freedom."""
        if self.error is None or self.df < 1:
            return None
        margin = t_critical(self.df, LEVEL) * self.error
        return self.mean - margin, self.mean + margin


@dataclass(frozen=True, slots=True)
class LogOverlap:
    """Diagnostics of the importance weights of a log."""

    n: int
    groups: int
    effective: float
    """(sum w)^2 / sum w^2: the effective number of conversations."""
    effective_groups: float
    """The same of the weights summed by question: the effective number of questions."""
    mean_weight: float
    off: float
    """Distance of the mean weight from 1, in standard errors."""
    shape: float | None
    """Pareto shape of the largest weights; None if too few can be fitted, or all are equal."""
    largest: float
    """The largest weight's share of the sum of weights."""

    def unknown_reasons(self, least: float = LEAST) -> list[str]:
        """Return the reasons why the policy's value cannot be estimated from this log; empty if it
        can."""
        why = []
        if self.effective_groups < least:
            why.append(
                f"the effective sample size is {self.effective_groups:.1f} questions "
                f"({self.effective:.1f} conversations); expected at least {least:g}"
            )
        if self.shape is not None and self.shape > HEAVY:
            why.append(
                f"the largest weights have a tail of Pareto shape {self.shape:.2f}; expected at "
                f"most {HEAVY:g}: a few conversations dominate the estimate, and rarer ones that "
                "are not in the log would too"
            )
        if self.off > FAR:
            why.append(
                f"the mean weight is {self.mean_weight:.3g}, {self.off:.1f} standard errors off 1: "
                "the policy says things that the log does not contain"
            )
        return why


def importance_weights(draws: Sequence[LoggedReward]) -> list[float]:
    """Return each draw's importance weight divided by the largest, in order: 0 to 1, the largest
    being 1.

    No estimate depends on their scale. Raise ValueError without draws.
    """
    most = max(draw.log_ratio for draw in draws)
    return [math.exp(draw.log_ratio - most) for draw in draws]


def snips_value(draws: Sequence[LoggedReward]) -> PolicyValue:
    """Return the self-normalised (SNIPS) estimate of the policy's mean reward.

    The error is clustered by question, None for a single question; the degrees of freedom are the
    effective number of questions minus 1. Raise ValueError without draws.
    """
    return _weighted_value(
        [(d.group, w, d.reward) for d, w in zip(draws, importance_weights(draws), strict=True)]
    )


def value_gain(draws: Sequence[LoggedReward]) -> PolicyValue:
    """Return the policy's SNIPS value minus the mean reward of the log, with the error of the
    difference.

    The error is clustered by question, None for a single question; the degrees of freedom are those
    of the SNIPS value. Raise ValueError without draws.
    """
    value, n = snips_value(draws), len(draws)
    own = math.fsum(draw.reward for draw in draws) / n
    w = importance_weights(draws)
    total = math.fsum(w)
    parts = _jackknife_terms(
        _group_sums(
            (d.group, weight * (d.reward - value.mean) / total)
            for d, weight in zip(draws, w, strict=True)
        ),
        _group_sums((d.group, weight) for d, weight in zip(draws, w, strict=True)),
    )
    for draw in draws:
        parts[draw.group] -= (draw.reward - own) / n
    return PolicyValue(value.mean - own, _clustered_error(parts), value.df)


def doubly_robust(
    draws: Sequence[LoggedReward], sampled: Sequence[tuple[str, float]] = ()
) -> PolicyValue:
    """Return the doubly robust estimate of the policy's mean reward.

    `sampled` are (question, prediction) of the policy's own conversations; their mean is the direct
    part, and a draw without a prediction then counts as predicted 0. Without `sampled` the
    prediction of a draw is the mean reward of its question's other draws (of all others, if it is
    the only one), which is the same under both policies. The error is None for a single question.
    Raise ValueError without draws.
    """
    w = importance_weights(draws)
    total = math.fsum(w)
    predicted = [d.predicted or 0.0 for d in draws] if sampled else leave_one_out_means(draws)
    direct = sampled or [(d.group, q) for d, q in zip(draws, predicted, strict=True)]
    mean = math.fsum(q for _, q in direct) / len(direct)
    apart = [d.reward - q for d, q in zip(draws, predicted, strict=True)]
    change = math.fsum(weight * a for weight, a in zip(w, apart, strict=True)) / total
    parts = _jackknife_terms(
        _group_sums(
            (d.group, weight * (a - change) / total)
            for d, weight, a in zip(draws, w, apart, strict=True)
        ),
        _group_sums((d.group, weight) for d, weight in zip(draws, w, strict=True)),
    )
    for group, q in direct:
        parts[group] = parts.get(group, 0.0) + (q - mean) / len(direct)
    return PolicyValue(mean + change, _clustered_error(parts), _degrees_of_freedom(draws, w))


def leave_one_out_means(draws: Sequence[LoggedReward]) -> list[float]:
    """Return for each draw, in order, the mean reward of the other draws of its question.

    For the only draw of its question it is the mean of all other draws, and for a single draw its
    own reward.
    """
    sums: dict[str, tuple[float, int]] = {}
    for draw in draws:
        total, n = sums.get(draw.group, (0.0, 0))
        sums[draw.group] = total + draw.reward, n + 1
    overall, n = math.fsum(draw.reward for draw in draws), len(draws)
    means = []
    for draw in draws:
        total, count = sums[draw.group] if sums[draw.group][1] > 1 else (overall, n)
        means.append((total - draw.reward) / (count - 1) if count > 1 else draw.reward)
    return means


def direct_value(sampled: Iterable[tuple[str, float]]) -> PolicyValue | None:
    """Return the mean of (question, prediction) of the policy's own conversations; None without
    any."""
    mean_prediction = estimate_mean(sampled)
    return (
        None
        if mean_prediction is None
        else PolicyValue(mean_prediction.mean, mean_prediction.error, mean_prediction.df)
    )


def measure_overlap(draws: Sequence[LoggedReward]) -> LogOverlap:
    """Return the diagnostics of a log's importance weights. Raise ValueError without draws."""
    w = importance_weights(draws)
    total, n = math.fsum(w), len(draws)
    sums = _group_sums((d.group, weight) for d, weight in zip(draws, w, strict=True))
    raw_weights = [math.exp(min(d.log_ratio, 700.0)) for d in draws]
    mean = estimate_mean((d.group, weight) for d, weight in zip(draws, raw_weights, strict=True))
    assert mean is not None
    off = 0.0
    if mean.error is not None and abs(mean.mean - 1) > 1e-6:
        off = abs(mean.mean - 1) / mean.error if mean.error else math.inf
    return LogOverlap(
        n,
        len(sums),
        effective_count(w),
        _degrees_of_freedom(draws, w) + 1,
        mean.mean,
        off,
        pareto_shape(w),
        max(w) / total,
    )


def pareto_shape(values: Sequence[float]) -> float | None:
    """Return the shape k of the generalised Pareto distribution fitted to the largest values.

    Of n values the ceil(min(n / 5, 3 sqrt(n))) largest are fitted (Vehtari et al. 2024), as
    excesses over the next value, by the method of Zhang and Stephens (2009), with a weakly
    informative prior of 10 values at 0.5. None below 21 values, or if their lower quartile does not
    exceed that next value.
    """
    ordered = sorted(values)
    m = math.ceil(min(len(ordered) / 5, 3 * math.sqrt(len(ordered))))
    if m < 5:
        return None
    cut = ordered[-m - 1]
    tail = [value - cut for value in ordered[-m:]]
    if tail[-1] <= 1e-12 * max(ordered[-1], 1e-300) or tail[math.floor(m / 4 + 0.5) - 1] <= 0:
        return None
    quarter, top = tail[math.floor(m / 4 + 0.5) - 1], tail[-1]
    grid = 30 + math.floor(math.sqrt(m))
    bs = [1 / top + (1 - math.sqrt(grid / (j - 0.5))) / (3 * quarter) for j in range(1, grid + 1)]
    ks = [math.fsum(math.log1p(-b * x) for x in tail) / m for b in bs]
    likely = [m * (math.log(-b / k) - k - 1) for b, k in zip(bs, ks, strict=True)]
    shares = [
        1 / math.fsum(math.exp(min(o - likelihood, 700.0)) for o in likely) for likelihood in likely
    ]
    b = math.fsum(x * s for x, s in zip(bs, shares, strict=True)) / math.fsum(shares)
    k = math.fsum(math.log1p(-b * x) for x in tail) / m
    return (m * k + 10 * 0.5) / (m + 10)


def _weighted_value(rows: Sequence[tuple[str, float, float]]) -> PolicyValue:
    """Return the weighted mean of (group, weight, value) rows."""
    total = math.fsum(w for _, w, _ in rows)
    mean = math.fsum(w * r for _, w, r in rows) / total
    sums = _group_sums((group, w) for group, w, _ in rows)
    parts = _jackknife_terms(
        _group_sums((group, w * (r - mean) / total) for group, w, r in rows), sums
    )
    return PolicyValue(mean, _clustered_error(parts), effective_count(sums.values()) - 1)


def _degrees_of_freedom(draws: Sequence[LoggedReward], w: Sequence[float]) -> float:
    """Return the effective number of questions minus 1."""
    sums = _group_sums((d.group, weight) for d, weight in zip(draws, w, strict=True))
    return effective_count(sums.values()) - 1


def _group_sums(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the sum of values by group."""
    sums: dict[str, float] = {}
    for group, value in parts:
        sums[group] = sums.get(group, 0.0) + value
    return sums


def _jackknife_terms(parts: dict[str, float], sums: dict[str, float]) -> dict[str, float]:
    """Return each question's linearised term divided by 1 minus its share of the weights, as in a
    jackknife: how far the weighted mean moves without it. Equal weights leave the terms as they
    are."""
    total, even = math.fsum(sums.values()), 1 - 1 / len(sums)
    return {g: part * even / max(1e-3, 1 - sums[g] / total) for g, part in parts.items()}


def _clustered_error(parts: dict[str, float]) -> float | None:
    """Return the clustered standard error of linearised terms; None for fewer than two groups."""
    g = len(parts)
    if g < 2:
        return None
    return math.sqrt(g / (g - 1) * math.fsum(part * part for part in parts.values()))
