"""A difference at equal covariates: a regression within cells, clustered by group.

Two sides (Base and a policy) have outcomes y and covariates x in the same cells (a question at a
temperature): y = cell + gain [second side] + slope . x + noise. What a cell's conversations share
cancels, so the slopes come from how outcomes and covariates vary together about one question, on
both sides at once. For an outcome that bends (a judge whose taste for length wears off) they are
close to the mean slope between the two sides' levels.

The error is the jackknife's over groups (CR3 clustering), so that the noise of the slopes, times
how far the covariates moved, is in it; degrees of freedom are groups - 1 - covariates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from convbench.stats.estimate import Estimate
from convbench.stats.jackknife import Moments, jackknife

SINGULAR = 1e10
"""Condition number from which covariates cannot be told from each other, or from the sides."""


class Outcome(NamedTuple):
    """One outcome of one side."""

    group: str
    """The independent unit; a cell lies in one group."""
    cell: Hashable
    second: bool
    """Whether it is the second side's."""
    y: float
    x: Sequence[float]
    """Covariates, in units of like size."""


def adjusted(outcomes: Iterable[Outcome]) -> Estimate | None:
    """Return the second side's y less the first's at equal x; `n` counts outcomes.

    None without outcomes, where covariates cannot be told from each other or from the sides (each
    side has values of its own), or where there are too few groups for so many covariates.
    """
    rows = list(outcomes)
    width = len(rows[0].x) if rows else 0
    found = jackknife(_moments(rows), partial(_gain, size=width + 2))
    if found is None or found.error is None or found.df - width < 1:
        return None
    return replace(found, df=found.df - width)


def _moments(rows: Sequence[Outcome]) -> Iterator[tuple[str, Moments]]:
    """Yield products of (side, x, y) with each other, less their cell's means: the upper triangle
    of each row's."""
    cells: defaultdict[Hashable, list[Outcome]] = defaultdict(list)
    for row in rows:
        cells[row.cell].append(row)
    for cell in cells.values():
        terms = [(float(row.second), *row.x, row.y) for row in cell]
        means = [math.fsum(column) / len(cell) for column in zip(*terms, strict=True)]
        for row, values in zip(cell, terms, strict=True):
            apart = [value - mean for value, mean in zip(values, means, strict=True)]
            yield row.group, [a * b for i, a in enumerate(apart) for b in apart[i:]]


def _gain(sums: Moments, *, size: int) -> float | None:
    """Return the coefficient of the side; None where it has none of its own."""
    import numpy as np

    products = np.zeros((size, size))
    products[np.triu_indices(size)] = sums
    design = products[:-1, :-1] + np.triu(products[:-1, :-1], 1).T
    condition = np.linalg.cond(design) if design.any() else math.inf
    if not condition < SINGULAR:
        return None
    return float(np.linalg.solve(design, products[:-1, -1])[0])
