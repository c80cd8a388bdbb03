"""How far a feature of texts moved between two policies, in standard deviations of the first.

Glass's delta (Glass 1976) of paired differences: the mean difference, with its clustered error,
over the first policy's standard deviation. The error is that of the ratio (delta method), for the
standard deviation is estimated too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from convbench.stats.estimate import Estimate, estimate


def drift(pairs: Iterable[tuple[str, float, float]]) -> Estimate | None:
    """Return the drift of (group, first, second) on the same places; None without a pair, or
    where the first never varies and the second is not the same."""
    found = list(pairs)
    if not found:
        return None
    terms = _terms([first for _, first, _ in found], [second for *_, second in found])
    if terms is None:
        same = all(second == first for _, first, second in found)
        return estimate((group, 0.0) for group, *_ in found) if same else None
    return estimate((group, term) for (group, *_), term in zip(found, terms, strict=True))


def drift_apart(rows: Iterable[tuple[str, float, float, float, float]]) -> Estimate | None:
    """Return how much further one measure drifted than another on the same places, from (group,
    first, second, and the other measure's first, second), each in standard deviations of its own;
    None without a place, or where a measure's first never varies."""
    found = list(rows)
    if not found:
        return None
    groups, *columns = zip(*found, strict=True)
    one, other = _terms(columns[0], columns[1]), _terms(columns[2], columns[3])
    if one is None or other is None:
        return None
    return estimate((g, x - y) for g, x, y in zip(groups, one, other, strict=True))


def _terms(first: Sequence[float], second: Sequence[float]) -> list[float] | None:
    """Return numbers whose mean is the drift and whose variance that of its estimate; None where
    the first never varies."""
    mean = math.fsum(first) / len(first)
    spread = math.sqrt(math.fsum((a - mean) ** 2 for a in first) / len(first))
    if spread < 1e-12 * max(1.0, abs(mean)):
        return None
    whole = (math.fsum(second) - math.fsum(first)) / len(first) / spread
    return [
        (b - a) / spread - whole / 2 * (((a - mean) / spread) ** 2 - 1)
        for a, b in zip(first, second, strict=True)
    ]
