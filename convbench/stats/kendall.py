"""Kendall's rank correlation of two orders, with an exact p and a bootstrap interval.

tau-b (Kendall 1945), which allows ties: (C - D) / sqrt((n0 - n1)(n0 - n2)), C concordant and D
discordant of the n0 = n(n-1)/2 pairs, n1 and n2 the pairs that are tied in one and in the other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from convbench.stats.means import LEVEL

MOST = 7
"""Longest sequence whose permutations are all tried for the exact p: 7! = 5,040."""
DRAWS = 1000
"""Samples of a bootstrap interval."""
FEWEST = 0.9
"""Smallest share of the samples with a defined tau from which an interval is reported."""


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Kendall's tau of two orders of the same items."""

    tau: float | None
    """In [-1, 1]; None if either order is all ties."""
    low: float | None
    high: float | None
    """The bootstrap interval; None without one."""
    p: float | None
    """Exact one-sided p: the share of permutations that agree at least as well."""
    n: int
    """Number of items."""


def tau_b(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two equally long sequences of values; None for fewer than two
    values, or a sequence that is all ties."""
    score = untied_first = untied_second = 0
    for (a, b), (c, d) in combinations(zip(first, second, strict=True), 2):
        x, y = (a > c) - (a < c), (b > d) - (b < d)
        score += x * y
        untied_first += x * x
        untied_second += y * y
    # Rounding can leave the quotient slightly outside [-1, 1].
    return (
        max(-1.0, min(1.0, score / math.sqrt(untied_first * untied_second)))
        if untied_first and untied_second
        else None
    )


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the share of permutations of `first` whose tau is at least the observed one: the exact
    one-sided p of no agreement. None for more than seven values, or without a tau."""
    if len(first) > MOST or tau_b(first, second) is None:
        return None
    # The denominator is the same for every permutation, so comparing C - D is enough.
    above = [[(a > b) - (a < b) for b in first] for a in first]
    pairs = [
        (i, j, sign)
        for i, j in combinations(range(len(second)), 2)
        if (sign := (second[i] > second[j]) - (second[i] < second[j]))
    ]
    scores = [
        sum(sign * above[order[i]][order[j]] for i, j, sign in pairs)
        for order in permutations(range(len(first)))
    ]
    return sum(score >= scores[0] for score in scores) / len(scores)


def rank_agreement(
    values: Sequence[float],
    others: Sequence[float],
    resampled: Callable[[random.Random], Sequence[float] | None] | None = None,
    *,
    seed: int = 0,
) -> RankAgreement:
    """Return tau of `values` against `others`, with an exact p and a percentile interval.

    `resampled` returns a bootstrap sample of `values` (None for a sample without values); `others`
    are fixed. Without it there is no interval.
    """
    tau = tau_b(values, others)
    low = high = None
    if resampled is not None and tau is not None:
        rng = random.Random(seed)
        low, high = _percentile_interval(
            [_resampled_tau(resampled(rng), others) for _ in range(DRAWS)]
        )
    return RankAgreement(tau, low, high, permutation_p(values, others), len(values))


def _resampled_tau(values: Sequence[float] | None, others: Sequence[float]) -> float | None:
    return None if values is None else tau_b(values, others)


def _percentile_interval(taus: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return the percentile interval of the samples; (None, None) if too few have a tau."""
    known = sorted(tau for tau in taus if tau is not None)
    if not known or len(known) < FEWEST * len(taus):
        return None, None
    tail = (1 - LEVEL) / 2
    return known[math.floor(tail * len(known))], known[math.ceil((1 - tail) * len(known)) - 1]
