"""What moves a score beside the conversation: differences at equal covariates, whose it is and how
long, how far texts drifted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from convbench.stats.jackknife import Moments, jackknife
from convbench.stats.means import Estimate, estimate

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


def self_preference(rows: Iterable[tuple[Hashable, bool, float]]) -> Estimate | None:
    """Return how much higher a judge leans on conversations of its own model family.

    `rows` are (group, whether the conversation is its family's, lean): the difference of the two
    means, over groups. None where one of them is over nothing (Panickssery et al., arXiv
    2404.13076, on what is measured).
    """
    moments = (
        (group, (float(own), lean if own else 0.0, float(not own), 0.0 if own else lean))
        for group, own, lean in rows
    )
    return jackknife(moments, _apart)


def length_bias(rows: Iterable[tuple[Hashable, int, float]]) -> Estimate | None:
    """Return how much higher a judge leans on a conversation of twice as many words.

    `rows` are (group, words, lean): the slope of a line over log2 of the words, over groups. None
    where lengths never differ. Dubois et al., arXiv 2404.04475, take length for what confounds
    judges.
    """
    logs = ((group, math.log2(max(1, words)), lean) for group, words, lean in rows)
    return jackknife(((group, (1.0, x, y, x * x, x * y)) for group, x, y in logs), _slope)


def _apart(sums: Moments) -> float | None:
    own, theirs, others, rest = sums
    return None if own < 0.5 or others < 0.5 else theirs / own - rest / others


def _slope(sums: Moments) -> float | None:
    n, x, y, xx, xy = sums
    spread = xx - x * x / n if n > 0.5 else 0.0
    # What is left of equal lengths is rounding, no variance.
    return None if spread <= 1e-9 * max(1.0, xx) else (xy - x * y / n) / spread


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
