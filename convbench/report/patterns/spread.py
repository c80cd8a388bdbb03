"""How far responses lie apart, in numbers that can be compared across sets (appendix E.3).

Distances are 1 - cosine between TF-IDF vectors of the uncommon words: those that the picture is
made from, before UMAP bends them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import fmean, quantiles
from typing import Any

from convbench.report.patterns.analysis import UMAP, Patterns, tfidf

WHISKER = 1.5
"""Interquartile ranges above the third quartile from which on a distance is far out (Tukey)."""
MOST = 1500
"""Responses of which all distances are taken; of more, evenly spaced ones."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What a picture shows, as numbers; None where there is too little to measure."""

    responses: int
    distance: float | None
    """Mean distance between two responses: the larger, the less dense."""
    by_policy: dict[str, float | None]
    """The same within each policy."""
    separation: float | None
    """Share of the 15 nearest neighbours that are of the same policy, less what chance gives."""
    first: float
    """Share of the responses in the largest pattern."""
    patterns: float
    """Effective number of patterns, the exponential of their entropy."""
    outliers: float | None
    """Share of the responses whose nearest neighbour is far out."""


def spread(found: Patterns) -> Spread:
    """Measure density, separation, use of patterns and outliers."""
    shares = [found.pattern.count(k) / len(found.pattern) for k in range(found.k)]
    entropy = -math.fsum(share * math.log(share) for share in shares)
    distances, policies = _distances(found)
    nearest = [min(row) for row in _others(distances)]
    return Spread(
        responses=len(found.responses),
        distance=_mean(distances),
        by_policy={name: _mean(_within(distances, policies, name)) for name in found.policies},
        separation=_separation(distances, policies),
        first=max(shares),
        patterns=math.exp(entropy),
        outliers=_far_out(nearest),
    )


def _distances(found: Patterns) -> tuple[list[list[float]], list[str]]:
    """Return the distances of the responses that have an uncommon word, and their policies."""
    outside = [" ".join(w for w in r.words if w not in found.common) for r in found.responses]
    matrix: Any = tfidf(outside)
    if matrix is None:
        return [], []
    kept = [place for place in range(matrix.shape[0]) if matrix[place].nnz]
    step = max(1, math.ceil(len(kept) / MOST))
    kept = kept[::step]
    if len(kept) < 2:
        return [], []
    close = (matrix[kept] @ matrix[kept].T).toarray()
    distances = [[max(0.0, 1.0 - value) for value in row] for row in close.tolist()]
    return distances, [found.responses[place].policy for place in kept]


def _others(distances: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[d for j, d in enumerate(row) if j != i] for i, row in enumerate(distances)]


def _mean(distances: Sequence[Sequence[float]]) -> float | None:
    values = [d for row in _others(distances) for d in row]
    return fmean(values) if values else None


def _within(
    distances: Sequence[Sequence[float]], policies: Sequence[str], name: str
) -> list[list[float]]:
    mine = [policy == name for policy in policies]
    return [list(compress(row, mine)) for row in compress(distances, mine)]


def _separation(distances: Sequence[Sequence[float]], policies: Sequence[str]) -> float | None:
    count = min(UMAP["n_neighbors"], len(policies) - 1)
    if count < 1 or len(set(policies)) < 2:
        return None
    shares, chances = [], []
    for i, row in enumerate(distances):
        order = sorted((j for j in range(len(row)) if j != i), key=lambda j: (row[j], j))
        shares.append(fmean(policies[j] == policies[i] for j in order[:count]))
        chances.append((policies.count(policies[i]) - 1) / (len(policies) - 1))
    return fmean(shares) - fmean(chances)


def _far_out(nearest: Sequence[float]) -> float | None:
    if len(nearest) < 4:
        return None
    low, _, high = quantiles(nearest, n=4, method="inclusive")
    return fmean(value > high + WHISKER * (high - low) for value in nearest)
