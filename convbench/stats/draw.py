"""Sampling of conversations for people to label, with known probabilities.

- `uniform`: equal probabilities.
- `stratified`: equal probabilities, spread evenly over the judge's scores.
- `score`: the higher the score the likelier, up to three times as likely: gaming hides there.
- `optimal`: in proportion to the expected distance of people from the judge (Neyman 1934; for
  prediction-powered means Zrnic, Candes, arXiv 2403.03208, section 4), with a fifth drawn evenly.

Every draw is systematic sampling with unequal probabilities (Madow 1949): a comb of distance 1 with
a random start over the cumulated probabilities, in random order (by score if stratified). Each
conversation is drawn with exactly its probability, and the sample has exactly the size requested.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from convbench.stats.agreement import mean_ranks
from convbench.util.words import DrawBy

EVEN = 0.2
"""Share of an optimal draw that is even, so that no weight grows without bound."""
STRATA = 4
"""Number of score strata in which residuals are averaged."""
PRIOR = 4.0
"""Weight, in labels, of the overall residual within each stratum."""


def draw_probabilities(sizes: Sequence[float], count: int) -> list[float]:
    """Return the probability of each element, in proportion to its size, none above 1.

    They add up to `count`. All are 1 if `count` is at least the number of elements, and the rest is
    shared evenly where all sizes left are 0. Raise ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"found {count}; expected at least 1")
    if count >= len(sizes):
        return [1.0] * len(sizes)
    chances = [0.0] * len(sizes)
    sure: set[int] = set()
    while True:
        rest = [i for i in range(len(sizes)) if i not in sure]
        total = math.fsum(sizes[i] for i in rest)
        left = count - len(sure)
        for i in rest:
            chances[i] = left * sizes[i] / total if total > 0 else left / len(rest)
        above = [i for i in rest if chances[i] >= 1]
        if not above:
            return chances
        for i in above:
            chances[i] = 1.0
        sure.update(above)


def draw_systematic(
    chances: Sequence[float], rng: random.Random, along: Sequence[float] | None = None
) -> list[int]:
    """Return the indices of a systematic sample with these probabilities, in random order.

    Its size is the sum of the probabilities, rounded down or up at random. With `along` the sample
    is spread evenly over these values. `rng` is advanced.
    """
    order = list(range(len(chances)))
    rng.shuffle(order)
    if along is not None:
        order.sort(key=along.__getitem__)
    indices, reached, start = [], 0.0, rng.random()
    for i in order:
        before, reached = reached, reached + chances[i]
        if math.floor(reached - start + 1e-9) > math.floor(before - start + 1e-9):
            indices.append(i)
    rng.shuffle(indices)
    return indices


def sampling_sizes(
    by: DrawBy, scores: Sequence[float], apart: Sequence[float] | None = None
) -> list[float]:
    """Return a size for each conversation, to which its probability is to be proportional.

    For `score` it is 0.5 plus the rank of the score from 0 to 1, ties at their mean. For `optimal`
    it is 0.2 plus 0.8 times `apart` over its mean; `apart` is the expected distance of people from
    the judge (root mean square), and ValueError is raised without it. Otherwise every size is 1.
    """
    if by == "score":
        return [0.5 + rank for rank in _unit_ranks(scores)]
    if by == "optimal":
        if apart is None:
            raise ValueError("found no apart; expected the distances of people from the judge")
        mean = math.fsum(apart) / len(apart) or 1.0
        return [(1 - EVEN) * distance / mean + EVEN for distance in apart]
    return [1.0] * len(scores)


def expected_distances(
    scores: Sequence[float], labelled: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the expected |human - judge| (root mean square) at each judge score, from (score,
    residual) of labels.

    Residuals are averaged in four strata of the labelled scores and shrunk towards the overall
    mean. Raises ValueError without labels.
    """
    if not labelled:
        raise ValueError("found no label; expected some")
    known = sorted(labelled)
    pooled = math.fsum(r * r for _, r in known) / len(known)
    step = max(1, math.ceil(len(known) / STRATA))
    edges = [known[i][0] for i in range(step, len(known), step)]
    squares = [[PRIOR * pooled, PRIOR] for _ in range(len(edges) + 1)]
    for score, residual in known:
        at = squares[_stratum_index(edges, score)]
        at[0] += residual * residual
        at[1] += 1
    roots = [math.sqrt(total / count) for total, count in squares]
    return [roots[_stratum_index(edges, score)] for score in scores]


def variance_saved(chances: Sequence[float], apart: Sequence[float]) -> float:
    """Return the share of variance that a draw saves over a uniform one of the same size.

    The variance is taken as sum(apart^2 / probability), `apart` being how far people are from the
    judge. It is negative for a draw worse than a uniform one, and 0 if every distance is 0.
    Elements of probability 0 add nothing to the draw's own variance. Raise ZeroDivisionError for
    empty sequences.
    """
    even = math.fsum(chances) / len(chances)
    mine = math.fsum(a * a / p for a, p in zip(apart, chances, strict=True) if p > 0)
    theirs = math.fsum(a * a / even for a in apart)
    return 1 - mine / theirs if theirs else 0.0


def _stratum_index(edges: Sequence[float], score: float) -> int:
    """Return the index of a score's stratum."""
    return sum(score >= edge for edge in edges)


def _unit_ranks(values: Sequence[float]) -> list[float]:
    """Return each value's rank from 0 to 1; ties share their mean."""
    most = max(1, len(values) - 1)
    return [rank / most for rank in mean_ranks(values)]
