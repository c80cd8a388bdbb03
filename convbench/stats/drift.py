"""How far a feature of texts moved between two policies, in standard deviations of the first.

Glass's delta (Glass 1976) of paired differences: the mean difference, with its clustered error,
over the first policy's standard deviation. The error is that of the ratio (delta method), for the
standard deviation is estimated too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from convbench.stats.estimate import Estimate, estimate


def drift(pairs: Iterable[tuple[str, float, float]]) -> Estimate | None:
    """Return the drift of (group, first, second) on the same places; None without a pair, or
    where the first never varies and the second is not the same."""
    found = list(pairs)
    if not found:
        return None
    mean = math.fsum(first for _, first, _ in found) / len(found)
    spread = math.sqrt(math.fsum((first - mean) ** 2 for _, first, _ in found) / len(found))
    if spread < 1e-12 * max(1.0, abs(mean)):
        same = all(second == first for _, first, second in found)
        return estimate((group, 0.0) for group, _, _ in found) if same else None
    whole = math.fsum(second - first for _, first, second in found) / len(found) / spread
    return estimate(
        (group, (second - first) / spread - whole / 2 * (((first - mean) / spread) ** 2 - 1))
        for group, first, second in found
    )
