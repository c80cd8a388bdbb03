"""Choose wrong options at random such that no visible feature tells the right one.

Many sets of wrong options are drawn for each question. The sets are then made more or less likely
by one rule, until the right option is expected to stand in the middle of each visible feature over
all questions: the distribution nearest to a uniform draw that does so (maximum entropy). The draw
itself is random. If it were balanced to the exact count, any part of the questions would reveal the
right options of the rest, by what that part has too few of.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

_RIDGE = 3.0
"""Strength of the ridge that keeps the rule from fitting a few questions, shared among all of
them."""
_RIDGE_BESIDE, _RIDGE_OF_PLACE = 2.0, 1.0
"""Ridges if questions have groups: of the rule over all, and of the rule of each group. With 10,
the rule over all leaves what leans; with 1, it balances so exactly that the questions learnt from
reveal the rest, reversed."""
_TURNS = 3
"""How often the rule over all and those of the groups are fitted in turn."""
_STEPS, _SMALL = 30, 1e-6


def rank_features(values: np.ndarray) -> np.ndarray:
    """Return features of the first row among all rows, as one array of 3 x columns values for an
    input of (rows, columns).

    First each column's rank of the row from the middle (-0.5 to 0.5), then by how much its chance
    to be the largest exceeds that of any row, then the same for the smallest. Needs at least two
    rows.
    """
    own, count = values[0], len(values)
    below, equal = (values < own).sum(0), (values == own).sum(0)
    position = (below + (equal - 1) / 2) / (count - 1) - 0.5
    most = (own == values.max(0)) / equal - 1 / count
    least = (own == values.min(0)) / equal - 1 / count
    return np.concatenate([position, most, least])


def distance_features(values: np.ndarray) -> np.ndarray:
    """Return features of the first row, as one array of 2 x columns values for an input of (rows,
    columns).

    First each column's difference of the row from the mean of all rows, then by how much its
    absolute value exceeds the mean absolute difference; both in units of a quarter of the column's
    mean absolute value.
    """
    away = (values - values.mean(0)) / (np.abs(values).mean(0) / 4 + 1e-9)
    return np.concatenate([away[0], np.abs(away[0]) - np.abs(away).mean(0)])


def kind_features(kinds: np.ndarray, count: int) -> np.ndarray:
    """Return for each column and kind whether the first row is of it (1 or 0), minus the share of
    all rows that are.

    (rows, columns) of kinds become one array of columns x count values, column by column. Kinds
    from `count` - 1 on count as the last one.
    """
    each = np.minimum(kinds, count - 1)[:, :, None] == np.arange(count)
    features: np.ndarray = (each[0] - each.mean(0)).ravel()
    return features


def draw_sets(shown: np.ndarray, rng: Random, places: Sequence[str] = ()) -> list[int]:
    """Return the index of the set that each question takes, drawn with the chances of
    `balanced_chances`.

    `shown` holds the features of each set, (questions, sets, features), `places` each question's
    group. `rng` is advanced.
    """
    chances = balanced_chances(shown, places)
    return [rng.choices(range(len(row)), list(row))[0] for row in chances]


def balanced_chances(shown: np.ndarray, places: Sequence[str] = ()) -> np.ndarray:
    """Return the chances (questions, sets), which sum to 1 in each row, that balance the features
    over all questions and over those of each group.

    A rule over all and one for each group are fitted in turn, each given the other. With the rule
    over all alone, right options outside a group would too seldom have what those of the group have
    too often, and a learner would see it reversed. With rules for groups alone, each with too few
    questions to be balanced, a bias that all groups share would stay.
    """
    members = [np.array([name == group for name in places]) for group in dict.fromkeys(places)]
    own, size = np.zeros(shown.shape[:2]), shown.shape[2]
    rule, rules = np.zeros(size), [np.zeros(size) for _ in members]
    for _ in range(_TURNS if members else 1):
        rule = _fit_rule(shown, own, _RIDGE_BESIDE if members else _RIDGE, rule)
        every = -(shown @ rule)
        for group, member in enumerate(members):
            part = shown[member]
            rules[group] = _fit_rule(part, every[member], _RIDGE_OF_PLACE, rules[group])
            own[member] = -(part @ rules[group])
    return _softmax(every + own)


def _fit_rule(shown: np.ndarray, before: np.ndarray, weight: float, rule: np.ndarray) -> np.ndarray:
    """Return what one rule subtracts from the log-chances `before` (questions, sets), by feature,
    to balance the mean features: exponential tilting with a ridge, by Newton's method from `rule`
    on."""
    count, _, size = shown.shape
    ridge = weight / count
    for _ in range(_STEPS):
        weighed = _softmax(before - shown @ rule)[:, :, None] * shown
        means = weighed.sum(1)
        spread = weighed.reshape(-1, size).T @ shown.reshape(-1, size) - means.T @ means
        slope = means.mean(0) - ridge * rule
        step = np.linalg.solve(spread / count + ridge * np.eye(size), slope)
        longest = float(np.abs(step).max())
        rule = rule + step / max(1.0, longest)
        if longest < _SMALL:
            break
    return rule


def _softmax(logs: np.ndarray) -> np.ndarray:
    raised = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
    return chances
