"""Bets on a stream of values, settled group by group: when one half is first ruled out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from convbench.stats.duels import EVEN, LOG_THRESHOLD, SHARES


@dataclass
class BettingProcess:
    """Log capital of bets for and against one mean, updated group by group."""

    mean: float = EVEN
    _above: list[float] = field(default_factory=lambda: [0.0] * len(SHARES))
    _below: list[float] = field(default_factory=lambda: [0.0] * len(SHARES))
    above: float = 0.0
    """Largest log capital so far of the bets on values above the mean."""
    below: float = 0.0
    """Largest log capital so far of the bets on values below the mean."""

    def add_value(self, value: float) -> None:
        """Update both capitals with one value. Raises ValueError outside 0 to 1."""
        if not 0 <= value <= 1:
            raise ValueError(f"found {value}; expected a value from 0 to 1")
        for k, share in enumerate(SHARES):
            self._above[k] += _log_return(share, value, self.mean)
            self._below[k] += _log_return(share, 1 - value, 1 - self.mean)
        self.above = max(self.above, _log_mean(self._above))
        self.below = max(self.below, _log_mean(self._below))


def stopping_point(values: Iterable[float]) -> tuple[int, int]:
    """Return (number of groups after which one half is first ruled out, side).

    The side is 1 if the values are above one half, -1 if below. If one half is never ruled out,
    return (number of all groups, 0). Raise ValueError for a value outside 0 to 1.
    """
    play, count = BettingProcess(), 0
    for count, value in enumerate(values, 1):
        play.add_value(value)
        if max(play.above, play.below) >= LOG_THRESHOLD:
            return count, 1 if play.above > play.below else -1
    return count, 0


def _log_return(share: float, value: float, mean: float) -> float:
    """Return the log return of one bet; infinite for a value above a mean of 0."""
    if mean <= 0:
        return math.inf if value > 0 else 0.0
    return math.log1p(share * (value / mean - 1))


def _log_mean(logs: list[float]) -> float:
    """Return the log of the mean capital of the bets."""
    most = max(logs)
    if math.isinf(most):
        return most
    return most + math.log(sum(math.exp(capital - most) for capital in logs) / len(logs))
