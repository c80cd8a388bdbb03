"""Agreement of raters: quadratic kappa, Spearman's rank correlation, Krippendorff's alpha."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convbench.stats.estimates import Estimate, estimate


def weighted_kappa(first: Any, second: Any) -> float | None:
    """Return the quadratically weighted kappa of two raters' scores of the same units.

    Scores need not be whole numbers: the squared difference is the weight (Cohen 1968). None
    without units, or if all scores of both are one number.
    """
    import numpy as np

    a, b = np.asarray(first, float), np.asarray(second, float)
    if not len(a):
        return None
    by_chance = a.var() + b.var() + (a.mean() - b.mean()) ** 2
    return None if by_chance == 0 else 1 - float(((a - b) ** 2).mean() / by_chance)


def spearman(first: Any, second: Any) -> float | None:
    """Return Spearman's rank correlation, ties sharing their mean rank; None if it is undefined,
    because one of them is constant."""
    import pandas as pd

    a, b = pd.Series(first, dtype=float).rank(), pd.Series(second, dtype=float).rank()
    if a.nunique() < 2 or b.nunique() < 2:
        return None
    return float(a.corr(b))


def krippendorff_alpha(ratings: Any) -> float | None:
    """Return Krippendorff's alpha at the interval level of a table of ratings, a row for each unit
    and a column for each rater; nan is a missing rating.

    1 - observed / expected disagreement, where units with fewer than two ratings do not count
    (Krippendorff 2011). None if no unit is left or all ratings are equal.
    """
    import numpy as np

    table = np.asarray(ratings, float)
    table = table[(~np.isnan(table)).sum(axis=1) > 1]
    counts = (~np.isnan(table)).sum(axis=1)
    total = int(counts.sum())
    if not total:
        return None
    # Over the pairs of one unit, and over all pairs, squared differences are variances.
    within = float((np.nanvar(table, axis=1) * counts**2 / (counts - 1)).sum()) / total
    everything = float(np.nanvar(table)) * total / (total - 1)
    return None if everything == 0 else 1 - within / everything


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two judges agree on the conversations that both scored; what is undefined is None."""

    common: int
    equal: float
    """Share of equal scores."""
    kappa: float | None
    spearman: float | None
    difference: Estimate
    """The first's score minus the second's, clustered by group."""


def agreement(groups: Any, first: Any, second: Any) -> Agreement | None:
    """Return the agreement of two judges' scores of the same conversations, missing ones nan; None
    if no conversation has both."""
    import numpy as np

    a, b = np.asarray(first, float), np.asarray(second, float)
    both = ~(np.isnan(a) | np.isnan(b))
    a, b = a[both], b[both]
    difference = estimate(np.asarray(groups, dtype=object)[both], a - b)
    if difference is None:
        return None
    equal = float((abs(a - b) < 1e-9).mean())
    return Agreement(len(a), equal, weighted_kappa(a, b), spearman(a, b), difference)
