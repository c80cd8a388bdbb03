"""Another judge's gain at equal length and style.

Judges of different makers like the same things, length before all, so that two of them may agree
on a gain that is nothing but words. Where a policy's texts moved from Base's, another judge's gain
counts at equal length and style only: the part that a regression leaves to the policy, whose slopes
come from texts about the same question (`stats/adjusted.py`). Style is what `report/moved.py`
counts; a taste for anything else that moved stays in the gain.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from convbench.report.moved import FAR, FEATURES, WORDS_FEATURE, StylePair
from convbench.stats.covariates import Outcome, adjusted
from convbench.stats.means import Estimate, estimate, side

TOO_FAR = 2.0
"""Standard deviations that a feature may move; beyond, hardly any text of one policy is like one
of the other, and a regression would have to guess."""
SHARE = 0.1
"""Change in the share of texts that have a feature at all, from which that is controlled too."""
PER_GROUP = 5
"""Fewest groups for each feature that is controlled."""


@dataclass(frozen=True, slots=True)
class StyleControl:
    """What of a judge's gain is left at equal length and style."""

    gain: Estimate | None
    """None where no texts of equal length and style can be compared."""
    moved: Mapping[str, float] = field(default_factory=dict)
    """Features that moved, words among them, with how many standard deviations."""

    @property
    def names(self) -> str:
        """What the gain may have come with: what moved furthest, and all that moved half as far."""
        far = max(self.moved.values(), default=0.0) / 2
        names = [name for name, shift in self.moved.items() if shift >= far]
        return ", ".join("length" if name == WORDS_FEATURE else name for name in names)


def style_control(
    scores: Iterable[tuple[str, str, float, float]], style: Mapping[str, StylePair]
) -> StyleControl:
    """Return a judge's gain at equal length and style, from (group, place, Base's score, the
    policy's) and the features by place."""
    pairs = [(place, a, b) for _, place, a, b in scores if place in style]
    here = [style[place] for place, *_ in pairs]
    moved = {name: _shift(_column(here, name)) for name in FEATURES if _moves(here, name)}
    columns = _columns(here, moved)
    if not moved and not columns:
        return StyleControl(estimate((style[p].group, b - a) for p, a, b in pairs))
    groups = len({pair.group for pair in here})
    if groups < PER_GROUP * len(columns) or any(_shift(one) > TOO_FAR for one in columns):
        return StyleControl(None, moved)
    scale = [_spread(one) for one in columns]
    outcomes = []
    for at, (place, a, b) in enumerate(pairs):
        for second, y in enumerate((a, b)):
            x = [one[second][at] / unit for one, unit in zip(columns, scale, strict=True)]
            outcomes.append(Outcome(style[place].group, style[place].cell, bool(second), y, x))
    gain = adjusted(outcomes)
    return StyleControl(None if gain is None else replace(gain, n=len(pairs)), moved)


Column = tuple[Sequence[float], Sequence[float]]
"""A feature of Base's texts, and of the policy's at the same places."""


def _columns(pairs: Collection[StylePair], moved: Collection[str]) -> list[Column]:
    """Return what is controlled: words always (at no cost where they did not move), each feature
    that moved, and whether a text has it at all where that changed."""
    found = []
    for name in FEATURES:
        if name in moved or name == WORDS_FEATURE:
            one = _column(pairs, name)
            found.append(one)
            has: Column = ([float(x > 0) for x in one[0]], [float(x > 0) for x in one[1]])
            if abs(_mean(has[1]) - _mean(has[0])) >= SHARE:
                found.append(has)
    return [one for one in found if len({*one[0], *one[1]}) > 1]


def _moves(pairs: Collection[StylePair], name: str) -> bool:
    """Whether a feature moved: for sure, or far."""
    one = _column(pairs, name)
    change = estimate(
        (pair.group, pair.after[name] - pair.before[name]) for pair in pairs
    )  # fmt: skip
    sure = change is not None and side(change.interval) != 0
    return sure or _shift(one) >= FAR


def _column(pairs: Collection[StylePair], name: str) -> Column:
    return [pair.before[name] for pair in pairs], [pair.after[name] for pair in pairs]


def _shift(one: Column) -> float:
    """Return how far a feature moved, in standard deviations."""
    apart = abs(_mean(one[1]) - _mean(one[0])) if one[0] else 0.0
    return apart / _spread(one) if apart else 0.0


def _spread(one: Column) -> float:
    """Return the standard deviation within the two policies; tiny where nothing varies within."""
    squares = (math.fsum((x - _mean(side)) ** 2 for x in side) / len(side) for side in one)
    return max(math.sqrt(math.fsum(squares) / 2), 1e-9)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
