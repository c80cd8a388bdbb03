"""Choosing among wrong options by chance, such that nothing that shows tells the right one.

Of each question many sets of wrong options are drawn. Sets then become likelier or less likely, all
by one rule, until over all questions the right option can be expected to stand in the middle by
each thing that shows: the distribution nearest to chance that does so (maximum entropy). What is
drawn is left to chance: were it evened out to the exact count, any part of the questions would tell
the right options of the rest, by what that part has too few of.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

_RIDGE = 3.0
"""What holds the rule back from bending the draw to a few questions, shared among all of them."""
_RIDGE_OF_PLACE = 1.0
"""The same, for the questions of one place."""
_STEPS, _SMALL = 30, 1e-6


def standing(values: np.ndarray) -> np.ndarray:
    """Return how far the first row stands from the middle of all in each column, how much oftener
    than by chance it is the most, and the least: (rows, columns) become three times the columns."""
    own, count = values[0], len(values)
    below, equal = (values < own).sum(0), (values == own).sum(0)
    place = (below + (equal - 1) / 2) / (count - 1) - 0.5
    most = (own == values.max(0)) / equal - 1 / count
    least = (own == values.min(0)) / equal - 1 / count
    return np.concatenate([place, most, least])


def apart(values: np.ndarray) -> np.ndarray:
    """Return how far the first row lies from the mean of all, and how much farther than rows do
    on average, in units that even out the columns: (rows, columns) become twice the columns."""
    away = (values - values.mean(0)) / (np.abs(values).mean(0) / 4 + 1e-9)
    return np.concatenate([away[0], np.abs(away[0]) - np.abs(away).mean(0)])


def among(kinds: np.ndarray, count: int) -> np.ndarray:
    """Return by kind whether the first row is of it, beside the share of all that are: (rows,
    columns) of kinds from 0, all below `count`, become count times the columns."""
    each = np.minimum(kinds, count - 1)[:, :, None] == np.arange(count)
    found: np.ndarray = (each[0] - each.mean(0)).ravel()
    return found


def drawn(shown: np.ndarray, rng: Random, places: Sequence[str] = ()) -> list[int]:
    """Return which set each question takes, of what shows in each (questions, sets, looks).

    It is evened out over all questions and then, where they have places, over those of each place
    by themselves: were it over all alone, right options elsewhere would have too seldom what those
    of one place have too often, and who learns elsewhere would be told these, turned around.
    """
    chances = evened(shown)
    for place in dict.fromkeys(places):
        own = np.array([one == place for one in places])
        chances[own] = evened(shown[own], chances[own], _RIDGE_OF_PLACE)
    return [rng.choices(range(len(row)), list(row))[0] for row in chances]


def evened(
    shown: np.ndarray, before: np.ndarray | None = None, weight: float = _RIDGE
) -> np.ndarray:
    """Return chances (questions, sets) that even out the mean of what shows, nearest to those
    `before` (equal ones): exponential tilting with a ridge of this weight, by Newton's method."""
    count, sets, size = shown.shape
    before = np.ones((count, sets)) if before is None else before
    ridge = weight / count
    rule = np.zeros(size)
    chances = _tilted(shown, rule, before)
    for _ in range(_STEPS):
        weighed = chances[:, :, None] * shown
        means = weighed.sum(1)
        spread = weighed.reshape(-1, size).T @ shown.reshape(-1, size) - means.T @ means
        slope = means.mean(0) - ridge * rule
        step = np.linalg.solve(spread / count + ridge * np.eye(size), slope)
        longest = float(np.abs(step).max())
        rule = rule + step / max(1.0, longest)
        chances = _tilted(shown, rule, before)
        if longest < _SMALL:
            break
    return chances


def _tilted(shown: np.ndarray, rule: np.ndarray, before: np.ndarray) -> np.ndarray:
    raised = -(shown @ rule)
    raised = before * np.exp(raised - raised.max(axis=1, keepdims=True))
    chances: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
    return chances
