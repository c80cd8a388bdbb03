"""Krippendorff's alpha over very many units: the coincidences of two values in a file."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from convbench.stats.columns import PART, Column, in_part, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def alpha_of_many(
    ratings: Sequence[Column[float]], level: Literal["ordinal", "interval"]
) -> float | None:
    """Return `agreement.alpha`, with nan for a missing rating. Memory holds 24 bytes of each value
    that there is, however often."""
    import numpy as np

    values = _distinct(ratings)
    if not len(values):
        return None
    codes, weights = _pairs(ratings, values)
    margin = np.zeros(len(values))
    for one, _, weight in _summed(codes, weights, len(values)):
        margin += np.bincount(one, weight, len(values))
    count = math.fsum(margin.tolist())
    if not count:
        return None
    rank = values
    if level == "ordinal":
        rank = np.cumsum(margin)
        rank -= margin
        rank += margin / 2
    mean = math.fsum((margin * rank).tolist()) / count
    chance = 2 * count * math.fsum((margin * (rank - mean) ** 2).tolist())
    seen = math.fsum(
        product
        for one, other, weight in _summed(codes, weights, len(values))
        for product in (weight * (rank[one] - rank[other]) ** 2).tolist()
    )
    return None if chance == 0 else 1 - (count - 1) * seen / chance


def _distinct(ratings: Sequence[Column[float]]) -> NDArray[Any]:
    """Return the values that there are, in order."""
    import numpy as np

    values, size = np.empty(0), 0
    coming: list[NDArray[Any]] = []
    for block in (block for column in ratings for block in column.blocks()):
        some = np.unique(np.frombuffer(block, np.float64))
        coming.append(some[some == some])
        size += len(coming[-1])
        if size > max(len(values), PART):
            values, coming, size = np.unique(np.concatenate([values, *coming])), [], 0
    return np.unique(np.concatenate([values, *coming]))


def _pairs(
    ratings: Sequence[Column[float]], values: NDArray[Any]
) -> tuple[Column[int], Column[float]]:
    """Return every two ratings of one unit, as (place of the one's value * values + place of the
    other's), with one over the unit's other ratings; those alike that stand near each other as
    one, or many would be alike in all their lowest bits."""
    import numpy as np

    codes, weights = Column(array("q")), Column(array("d"))
    for blocks in zip(*(column.blocks() for column in ratings), strict=True):
        given = np.array([np.frombuffer(block, np.float64) for block in blocks])
        there = given == given
        place, others = values.searchsorted(given), there.sum(0) - 1
        for one in range(len(given)):
            for other in range(len(given)):
                if one != other:
                    both = there[one] & there[other]
                    some = (place[one] * len(values) + place[other])[both]
                    found, at = np.unique(some, return_inverse=True)
                    codes.extend(found.tolist())
                    weights.extend(np.bincount(at, 1 / others[both], len(found)).tolist())
    return codes, weights


def _summed(
    codes: Column[int], weights: Column[float], count: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Yield places of one value, of the other, and how often they coincide, some at a time and each
    two once."""
    import numpy as np

    parts = parts_of(len(codes))
    for number in range(parts):
        mine, theirs = [np.empty(0, np.int64)], [np.empty(0)]
        for some, weight in zip(codes.blocks(), weights.blocks(), strict=True):
            inside = in_part(some, number, parts)
            mine.append(np.frombuffer(some, np.int64)[inside])
            theirs.append(np.frombuffer(weight, np.float64)[inside])
        found, at = np.unique(np.concatenate(mine), return_inverse=True)
        yield found // count, found % count, np.bincount(at, np.concatenate(theirs), len(found))
