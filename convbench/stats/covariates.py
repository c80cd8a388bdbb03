"""Effects on a score that are not the conversation's quality: differences at equal covariates,
self-preference, length bias, and the drift of text measures.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from convbench.stats.means import Estimate, Moments, estimate_mean, jackknife

SINGULAR = 1e10
"""Condition number from which covariates are collinear with each other, or with the sides."""


class SideOutcome(NamedTuple):
    """One observation of one of two sides."""

    group: str
    """The independent unit; a cell lies in one group."""
    cell: Hashable
    """Observations of one cell are compared with each other alone."""
    second: bool
    """Whether it is the second side's."""
    y: float
    x: Sequence[float]
    """Covariates, scaled to a similar size."""


def adjusted_difference(outcomes: Iterable[SideOutcome]) -> Estimate | None:
    """Return the second side's y minus the first's at equal x, by least squares within cells.

    The error is jackknifed over groups, and each covariate takes one degree of freedom; `n` counts
    outcomes. Return None without outcomes, with fewer than three groups or fewer groups than
    covariates plus 2, or if the coefficient is undefined with or without any one group: no cell has
    both sides, or covariates are collinear with each other or with the side.
    """
    rows = list(outcomes)
    width = len(rows[0].x) if rows else 0
    difference = jackknife(_cell_moments(rows), partial(_side_coefficient, size=width + 2))
    if difference is None or difference.error is None or difference.df - width < 1:
        return None
    return replace(difference, df=difference.df - width)


def _cell_moments(rows: Sequence[SideOutcome]) -> Iterator[tuple[str, Moments]]:
    """Yield (group, upper triangle of the outer product) of each row (side, x, y), centred on the
    means of its cell."""
    cells: defaultdict[Hashable, list[SideOutcome]] = defaultdict(list)
    for row in rows:
        cells[row.cell].append(row)
    for cell in cells.values():
        terms = [(float(row.second), *row.x, row.y) for row in cell]
        means = [math.fsum(column) / len(cell) for column in zip(*terms, strict=True)]
        for row, values in zip(cell, terms, strict=True):
            apart = [value - mean for value, mean in zip(values, means, strict=True)]
            yield row.group, [a * b for i, a in enumerate(apart) for b in apart[i:]]


def _side_coefficient(sums: Moments, *, size: int) -> float | None:
    """Return the least-squares coefficient of the side; None if the design is singular."""
    import numpy as np

    products = np.zeros((size, size))
    products[np.triu_indices(size)] = sums
    design = products[:-1, :-1] + np.triu(products[:-1, :-1], 1).T
    condition = np.linalg.cond(design) if design.any() else math.inf
    if not condition < SINGULAR:
        return None
    return float(np.linalg.solve(design, products[:-1, -1])[0])


def length_bias(rows: Iterable[tuple[Hashable, int, float]]) -> Estimate | None:
    """Return the slope of a judge's lean over log2 of the words: its gain for twice the length.

    `rows` are (group, words, lean); fewer than one word counts as one. The error is jackknifed over
    groups, None with fewer than three. Return None without rows, or if lengths never differ. Dubois
    et al., arXiv 2404.04475, show that length confounds judges.
    """
    logs = ((group, math.log2(max(1, words)), lean) for group, words, lean in rows)
    return jackknife(
        ((group, (1.0, x, y, x * x, x * y)) for group, x, y in logs), _regression_slope
    )


def _regression_slope(sums: Moments) -> float | None:
    """Return the slope of the regression line; None if x never varies."""
    n, x, y, xx, xy = sums
    spread = xx - x * x / n if n > 0.5 else 0.0
    # The variance of equal lengths is not exactly 0 here.
    return None if spread <= 1e-9 * max(1.0, xx) else (xy - x * y / n) / spread


def mean_drift(pairs: Iterable[tuple[str, float, float]]) -> Estimate | None:
    """Return the drift of a measure, (mean second - mean first) / deviation of the first.

    `pairs` are (group, first, second) of matched texts; the deviation is over all texts, and the
    error is clustered by group. If the first never varies, return a drift of 0 if every second
    equals its first, else None. Return None without a pair.
    """
    rows = list(pairs)
    if not rows:
        return None
    terms = _drift_terms([first for _, first, _ in rows], [second for *_, second in rows])
    if terms is None:
        same = all(second == first for _, first, second in rows)
        return estimate_mean((group, 0.0) for group, *_ in rows) if same else None
    return estimate_mean((group, term) for (group, *_), term in zip(rows, terms, strict=True))


def drift_difference(rows: Iterable[tuple[str, float, float, float, float]]) -> Estimate | None:
    """Return the drift of one measure minus that of another, with its error clustered by group.

    `rows` are (group, first, second, the other measure's first, its second) of matched texts. Each
    drift is in standard deviations of its own first. Return None without rows, or if a first never
    varies.
    """
    row_list = list(rows)
    if not row_list:
        return None
    groups, *columns = zip(*row_list, strict=True)
    terms, other = _drift_terms(columns[0], columns[1]), _drift_terms(columns[2], columns[3])
    if terms is None or other is None:
        return None
    return estimate_mean((g, x - y) for g, x, y in zip(groups, terms, other, strict=True))


def _drift_terms(first: Sequence[float], second: Sequence[float]) -> list[float] | None:
    """Return linearised terms whose mean is the drift and whose spread gives its standard error;
    None if the first never varies."""
    mean = math.fsum(first) / len(first)
    spread = math.sqrt(math.fsum((a - mean) ** 2 for a in first) / len(first))
    if spread < 1e-12 * max(1.0, abs(mean)):
        return None
    shift = (math.fsum(second) - math.fsum(first)) / len(first) / spread
    return [
        (b - a) / spread - shift / 2 * (((a - mean) / spread) ** 2 - 1)
        for a, b in zip(first, second, strict=True)
    ]
