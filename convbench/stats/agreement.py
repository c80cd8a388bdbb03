"""Agreement of raters: quadratic kappa, Spearman's rank correlation, Krippendorff's alpha."""

from __future__ import annotations

from typing import Any, NamedTuple

from convbench.stats.estimates import Estimate, estimate


def weighted_kappa(first: Any, second: Any) -> float | None:
    """Return the quadratically weighted kappa (Cohen 1968) of two raters' scores of the same units;
    None without units, or if all scores of both are one number."""
    import numpy as np

    a, b = np.asarray(first, float), np.asarray(second, float)
    if not len(a):
        return None
    by_chance = a.var() + b.var() + (a.mean() - b.mean()) ** 2
    return None if by_chance == 0 else 1 - float(((a - b) ** 2).mean() / by_chance)


def spearman(first: Any, second: Any) -> float | None:
    """Return the rank correlation, ties sharing their mean rank; None if one is constant."""
    import pandas as pd

    pair = pd.DataFrame({"first": first, "second": second}, dtype=float)
    found = pair.corr("spearman").iloc[0, 1]
    return None if found != found else float(found)


def krippendorff_alpha(ratings: Any) -> float | None:
    """Return Krippendorff's alpha at the interval level of a table of ratings, a row for each unit
    and a column for each rater; nan is a missing rating.

    1 - observed / expected disagreement, where units with fewer than two ratings do not count
    (Krippendorff 2011). None if no unit is left or all ratings are equal.
    """
    import numpy as np

    table = np.asarray(ratings, float)
    counts = (~np.isnan(table)).sum(axis=1)
    table, counts = table[counts > 1], counts[counts > 1]
    total = int(counts.sum())
    if not total:
        return None
    # Over the pairs of one unit, and over all pairs, squared differences are variances.
    within = float((np.nanvar(table, axis=1) * counts**2 / (counts - 1)).sum()) / total
    everything = float(np.nanvar(table)) * total / (total - 1)
    return None if everything == 0 else 1 - within / everything


class Agreement(NamedTuple):
    """How two judges agree on the conversations that both scored: their number, the share of equal
    scores, and the first's score minus the second's; what is undefined is None."""

    common: int
    equal: float
    kappa: float | None
    spearman: float | None
    difference: Estimate


def agreement(groups: Any, first: Any, second: Any) -> Agreement | None:
    """Return the agreement of two judges' scores, missing ones nan; None if none is common."""
    import numpy as np

    a, b = np.asarray(first, float), np.asarray(second, float)
    both = ~(np.isnan(a) | np.isnan(b))
    a, b = a[both], b[both]
    difference = estimate(np.asarray(groups, dtype=object)[both], a - b)
    if difference is None:
        return None
    equal = float((abs(a - b) < 1e-9).mean())
    return Agreement(len(a), equal, weighted_kappa(a, b), spearman(a, b), difference)
