"""Agreement between judges: Krippendorff's alpha, weighted kappa, rank correlations, and how many
independent judges a panel is worth.

Kendall's rank correlation of two orders, with an exact p and a bootstrap interval.

tau-b (Kendall 1945), which allows ties: (C - D) / sqrt((n0 - n1)(n0 - n2)), C concordant and D
discordant of the n0 = n(n-1)/2 pairs, n1 and n2 the pairs that are tied in one and in the other.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations
from typing import TYPE_CHECKING, Any, Literal

from convbench.stats.means import FEW, LEVEL, Estimate, Moments, estimate_mean, jackknife

if TYPE_CHECKING:
    from numpy.typing import NDArray

Numbers = Sequence[float]
Level = Literal["nominal", "ordinal", "interval", "ratio"]
"""Level of measurement, which defines the distance of two ratings."""


SAME = 1e-9
"""Scores closer than this are equal."""
BLOCK = 1 << 13
"""Units whose ratings are paired at once, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Agreement of two judges on the conversations that both scored. A figure that is undefined is
    None."""

    first: str
    second: str
    common: int
    """Conversations that both scored."""
    equal: float | None
    """Share of equal scores."""
    kappa: float | None
    """Quadratically weighted kappa."""
    correlation: float | None
    """Spearman's rank correlation."""
    apart: Estimate | None
    """Mean of the first's score minus the second's, clustered by group."""


def judge_agreement(
    names: tuple[str, str],
    groups: Sequence[Hashable],
    first: Numbers,
    second: Numbers,
) -> JudgeAgreement:
    """Return the agreement of two judges; `first[i]` and `second[i]` score conversation i of
    `groups[i]`.

    Scores within 1e-9 count as equal. Without conversations `common` is 0 and every other figure is
    None. Raise ValueError for sequences of different length.
    """
    pairs = zip(groups, first, second, strict=True)
    apart = estimate_mean((group, a - b) for group, a, b in pairs)
    same = sum(abs(a - b) < SAME for a, b in zip(first, second, strict=True))
    return JudgeAgreement(
        *names,
        len(first),
        same / len(first) if first else None,
        weighted_kappa(first, second),
        spearman(first, second),
        apart,
    )


def krippendorff_alpha(
    ratings: Sequence[Sequence[float | None]], level: Level = "ordinal"
) -> float | None:
    """Return Krippendorff's alpha of `ratings[rater][unit]`; None or nan marks a missing rating.

    1 is perfect agreement, 0 agreement by chance; it can be negative. Units with fewer than two
    ratings do not count. Return None if no unit is left, or if all ratings left are equal. Raise
    ValueError for raters with different numbers of units. Krippendorff, "Computing Krippendorff's
    alpha-reliability" (2011): 1 - observed / expected disagreement of coincidences.
    """
    if level in ("ordinal", "interval") and ratings and len(ratings[0]) >= FEW:
        return _alpha_of_many(ratings, level)
    pairs: Counter[tuple[float, float]] = Counter()
    for unit in zip(*ratings, strict=True):
        counts = Counter(value for value in unit if value is not None and value == value)
        total = counts.total()
        for rating, times in counts.items():
            for other, more in counts.items():
                weight = times * (more - (rating == other))
                if total > 1 and weight:
                    pairs[rating, other] += weight / (total - 1)
    margin: Counter[float] = Counter()
    for (rating, _), weight in pairs.items():
        margin[rating] += weight
    count = sum(margin.values())
    apart, chance = _distance_at_level(level, margin)
    seen = math.fsum(weight * apart(*pair) for pair, weight in pairs.items())
    return None if chance == 0 else 1 - (count - 1) * seen / chance


Distance = Callable[[float, float], float]


def _distance_at_level(level: Level, margin: Counter[float]) -> tuple[Distance, float]:
    """Return (squared distance of two ratings at this level, its sum over all pairs by chance).

    A distance that is the square of a difference needs no loop over pairs: the sum is a variance.
    """
    if level == "nominal":
        total = sum(margin.values())
        return lambda rating, other: float(rating != other), math.fsum(
            weight * (total - weight) for weight in margin.values()
        )
    if level == "ratio":
        return _ratio_distance, math.fsum(
            margin[rating] * margin[other] * _ratio_distance(rating, other)
            for rating in margin
            for other in margin
        )
    rank = {value: value for value in margin}
    if level == "ordinal":
        below = 0.0
        for value in sorted(margin):
            rank[value] = below + margin[value] / 2
            below += margin[value]
    total = sum(margin.values())
    mean = math.fsum(w * rank[value] for value, w in margin.items()) / (total or 1)
    spread = math.fsum(w * (rank[value] - mean) ** 2 for value, w in margin.items())
    return lambda rating, other: (rank[rating] - rank[other]) ** 2, 2 * total * spread


def _ratio_distance(rating: float, other: float) -> float:
    """Return the squared distance of two ratings at the ratio level."""
    return ((rating - other) / (rating + other)) ** 2 if rating + other else 0.0


def weighted_kappa(first: Numbers, second: Numbers) -> float | None:
    """Return the quadratically weighted kappa of two raters' scores of the same units.

    Scores need not be integers: the squared difference is the weight itself (Cohen 1968; for
    integer scores this is the usual table form). Return None without units, or if all scores of
    both raters are one number; raters that each give a constant, but not the same, have 0. Raise
    ValueError for lists of different length.
    """
    if len(first) != len(second):
        raise ValueError(f"found {len(first)} and {len(second)} ratings; expected as many")
    if not first:
        return None
    count = len(first)
    seen = math.fsum((a - b) ** 2 for a, b in zip(first, second, strict=True)) / count
    mean_a, mean_b = math.fsum(first) / count, math.fsum(second) / count
    spread = math.fsum((a - mean_a) ** 2 for a in first) + math.fsum(
        (b - mean_b) ** 2 for b in second
    )
    chance = spread / count + (mean_a - mean_b) ** 2
    return None if chance == 0 else 1 - seen / chance


def spearman(first: Numbers, second: Numbers) -> float | None:
    """Return Spearman's rank correlation of two lists of scores, ties at their mean rank.

    Return None for fewer than two pairs, or if one side is constant. Raise ValueError for lists of
    different length.
    """
    return pearson(mean_ranks(first), mean_ranks(second))


def pearson(first: Numbers, second: Numbers) -> float | None:
    """Return Pearson's correlation; None for fewer than two pairs or a side without variance.

    Raises ValueError for lists of different length.
    """
    if len(first) != len(second):
        raise ValueError(f"found {len(first)} and {len(second)} values; expected as many")
    if len(first) < 2:
        return None
    mean_a, mean_b = math.fsum(first) / len(first), math.fsum(second) / len(second)
    along = math.fsum((a - mean_a) * (b - mean_b) for a, b in zip(first, second, strict=True))
    spread_a = math.fsum((a - mean_a) ** 2 for a in first)
    spread_b = math.fsum((b - mean_b) ** 2 for b in second)
    return along / math.sqrt(spread_a * spread_b) if spread_a and spread_b else None


def mean_ranks(values: Numbers) -> Numbers:
    """Return the rank of each value from 0, ties at their mean rank."""
    if len(values) >= FEW:
        return _mean_ranks_of_many(values)
    held = list(values)
    order = array("q", sorted(range(len(held)), key=held.__getitem__))
    ranks = array("d", bytes(8 * len(held)))
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and held[order[end]] == held[order[start]]:
            end += 1
        for index in order[start:end]:
            ranks[index] = (start + end - 1) / 2
        start = end
    return ranks


def _mean_ranks_of_many(values: Numbers) -> Numbers:
    import numpy as np

    _, at, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    means = np.cumsum(counts) - (counts + 1) / 2
    return array("d", means[at].tobytes())


def _alpha_of_many(ratings: Sequence[Sequence[float | None]], level: Level) -> float | None:
    import numpy as np

    table = np.array([np.asarray(first, np.float64) for first in ratings])
    values = np.unique(table[table == table])
    if not len(values):
        return None
    first, other, weights = _coincidence_counts(table, values)
    margin = np.bincount(first, weights, len(values))
    count = math.fsum(margin.tolist())
    if not count:
        return None
    rank = values
    if level == "ordinal":
        rank = np.cumsum(margin) - margin + margin / 2
    mean = math.fsum((margin * rank).tolist()) / count
    chance = 2 * count * math.fsum((margin * (rank - mean) ** 2).tolist())
    seen = math.fsum((weights * (rank[first] - rank[other]) ** 2).tolist())
    return None if chance == 0 else 1 - (count - 1) * seen / chance


def _coincidence_counts(
    table: NDArray[Any], values: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return (index of one value, index of the other, count) of each pair of `values` that coincide
    in a unit of `table[rater][unit]`. A pair of ratings counts 1 / (ratings of the unit - 1)."""
    import numpy as np

    codes: list[NDArray[Any]] = [np.empty(0, np.int64)]
    weights: list[NDArray[Any]] = [np.empty(0)]
    for start in range(0, table.shape[1], BLOCK):
        some = table[:, start : start + BLOCK]
        is_rated = some == some
        positions, others = values.searchsorted(some), is_rated.sum(0) - 1
        for rater, other in permutations(range(len(some)), 2):
            both = is_rated[rater] & is_rated[other]
            pairs = (positions[rater] * len(values) + positions[other])[both]
            different, at = np.unique(pairs, return_inverse=True)
            codes.append(different)
            weights.append(np.bincount(at, 1 / others[both], len(different)))
    different, at = np.unique(np.concatenate(codes), return_inverse=True)
    counts = np.bincount(at, np.concatenate(weights), len(different))
    return different // len(values), different % len(values), counts


@dataclass(frozen=True, slots=True)
class EffectiveVotes:
    """The effective number of independent judges in a panel."""

    judges: int
    votes: float
    """Number of independent judges with the same precision, 1 to `judges` unless errors cancel."""
    low: float | None
    high: float | None
    """95% interval; None with fewer than three groups."""
    correlation: float
    """Mean correlation of two judges' errors."""
    conversations: int
    groups: int


def effective_votes(rows: Iterable[tuple[Hashable, Sequence[float]]]) -> EffectiveVotes | None:
    """Return a panel's effective votes from (group, each judge's error on one conversation).

    Return None with fewer than two judges or three conversations, or if the errors of a judge never
    vary. The interval is that of the mean correlation, on Fisher's scale, jackknifed over groups.
    Its ends are None with fewer than three groups, or if the correlation is undefined when one
    group is left out.
    """
    coming = iter(rows)
    first = next(coming, None)
    judges = len(first[1]) if first is not None else 0
    if judges < 2:
        return None
    pairs = list(combinations(range(judges), 2))

    def mean_correlation(sums: Moments) -> float | None:
        n, once = sums[0], sums[1 : 1 + judges]
        square = sums[1 + judges : 1 + 2 * judges]
        spread = [s - a * a / n for a, s in zip(once, square, strict=True)] if n > 2 else []
        # The variance of equal numbers is not exactly 0 here.
        if not spread or any(v <= 1e-12 * max(1.0, s) for v, s in zip(spread, square, strict=True)):
            return None
        correlations = (
            (along - once[a] * once[b] / n) / math.sqrt(spread[a] * spread[b])
            for (a, b), along in zip(pairs, sums[1 + 2 * judges :], strict=True)
        )
        return math.fsum(correlations) / len(pairs)

    def fisher_z(sums: Moments) -> float | None:
        correlation = mean_correlation(sums)
        return (
            None if correlation is None else math.atanh(min(max(correlation, -0.999999), 0.999999))
        )

    moments = (
        (group, (1.0, *x, *(v * v for v in x), *(x[a] * x[b] for a, b in pairs)))
        for group, x in chain([first] if first is not None else (), coming)
    )
    z_estimate = jackknife(moments, fisher_z)
    if z_estimate is None:
        return None
    low, high = _interval_ends(z_estimate)
    return EffectiveVotes(
        judges,
        effective_number(judges, math.tanh(z_estimate.mean)),
        None if high is None else effective_number(judges, high),
        None if low is None else effective_number(judges, low),
        math.tanh(z_estimate.mean),
        z_estimate.n,
        z_estimate.groups,
    )


def effective_number(judges: int, correlation: float) -> float:
    """Return Kish's effective number of judges; at most `judges` squared, if errors cancel."""
    return judges / max(1 + (judges - 1) * correlation, 1 / judges)


def _interval_ends(z_estimate: Estimate) -> tuple[float | None, float | None]:
    """Return the interval of an estimate on Fisher's scale as correlations."""
    ends = z_estimate.interval
    return (None, None) if ends is None else (math.tanh(ends[0]), math.tanh(ends[1]))


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
    """Return Kendall's tau-b of two sequences of values, from -1 to 1.

    Return None for fewer than two values, or if all values of a sequence are equal. Raise
    ValueError for sequences of different length.
    """
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
    """Return tau of `values` against `others`, with an exact one-sided p and a 95% percentile
    interval.

    `resampled` returns a bootstrap sample of `values` (None for a sample without values); `others`
    are fixed; 1,000 samples are drawn. `low` and `high` are None without `resampled`, without a
    tau, or if fewer than 90% of the samples have a tau. `p` is None for more than seven values.
    Raise ValueError for different lengths.
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
