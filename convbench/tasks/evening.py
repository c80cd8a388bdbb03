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
_RIDGE_BESIDE, _RIDGE_OF_PLACE = 2.0, 1.0
"""The same where questions have places: of the rule over all beside those of places, and of each
of these. Of 10, the rule over all leaves what leans; of 1, it evens out so exactly that the
questions learnt from tell the rest, turned around."""
_TURNS = 3
"""How often the rule over all and those of places are fitted, one after the other."""
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
    """Return which set each question takes, of what shows in each (questions, sets, looks)."""
    chances = evened(shown, places)
    return [rng.choices(range(len(row)), list(row))[0] for row in chances]


def evened(shown: np.ndarray, places: Sequence[str] = ()) -> np.ndarray:
    """Return chances (questions, sets) that even out all questions, and those of each place.

    A rule over all and one of each place are fitted in turn, each beside the other. Were it one
    over all alone, right options elsewhere would have too seldom what those of one place have too
    often, and who learns elsewhere would be told these, turned around. Were it those of places
    alone, of too few questions each to be evened out, what leans the same way in all would stay.
    """
    members = [np.array([one == place for one in places]) for place in dict.fromkeys(places)]
    own, size = np.zeros(shown.shape[:2]), shown.shape[2]
    rule, rules = np.zeros(size), [np.zeros(size) for _ in members]
    for _ in range(_TURNS if members else 1):
        rule = _rule(shown, own, _RIDGE_BESIDE if members else _RIDGE, rule)
        every = -(shown @ rule)
        for place, member in enumerate(members):
            part = shown[member]
            rules[place] = _rule(part, every[member], _RIDGE_OF_PLACE, rules[place])
            own[member] = -(part @ rules[place])
    return _chances(every + own)


def _rule(shown: np.ndarray, before: np.ndarray, weight: float, rule: np.ndarray) -> np.ndarray:
    """Return what one rule takes off the logarithms `before` of chances (questions, sets), by look,
    to even out the mean of what shows: exponential tilting with a ridge, by Newton's method from
    `rule` on."""
    count, _, size = shown.shape
    ridge = weight / count
    for _ in range(_STEPS):
        weighed = _chances(before - shown @ rule)[:, :, None] * shown
        means = weighed.sum(1)
        spread = weighed.reshape(-1, size).T @ shown.reshape(-1, size) - means.T @ means
        slope = means.mean(0) - ridge * rule
        step = np.linalg.solve(spread / count + ridge * np.eye(size), slope)
        longest = float(np.abs(step).max())
        rule = rule + step / max(1.0, longest)
        if longest < _SMALL:
            break
    return rule


def _chances(logs: np.ndarray) -> np.ndarray:
    raised = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
    return chances
