"""Is one policy better than the other, looked at after every group: anytime-valid by betting.

Values x of groups, taken in an order drawn beforehand, lie in [0, 1]. For a candidate mean m a
gambler stakes a share `a` of the capital on values above m and has 1 - a + a x / m of it after
each. A fair mix of gamblers with shares `SHARES` is a nonnegative martingale where the mean is m,
so that its capital ever passes 1 / alpha with probability alpha at most (Ville). The same is played
on values below. All m at which neither side ever passed 2 / alpha make an interval that holds it
at all times at once (Waudby-Smith, Ramdas, JRSS B 2024, arXiv 2010.09686, section 4, with a mix in
place of their predictable bets). The capital above m falls as m rises, so that both ends are found
by bisection. Whoever stops when one half is outside is wrong in 5 % of all cases at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

LEVEL = 0.95
SHARES = tuple(2.0**-k * 0.98 for k in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5))
"""Shares of the capital that the gamblers stake: for differences from large to small."""
EVEN = 0.5
STEPS = 40
"""Bisections of an interval's end."""


@dataclass
class Betting:
    """The capital of those who bet for and against one mean, fed group by group."""

    mean: float = EVEN
    _above: list[float] = field(default_factory=lambda: [0.0] * len(SHARES))
    _below: list[float] = field(default_factory=lambda: [0.0] * len(SHARES))
    above: float = 0.0
    """Largest log capital ever of the bets on values above the mean."""
    below: float = 0.0
    """Likewise below it."""

    def feed(self, value: float) -> None:
        """Settle the bets on one value, 0 to 1; ValueError for another."""
        if not 0 <= value <= 1:
            raise ValueError(f"found {value}; expected a value from 0 to 1")
        for k, share in enumerate(SHARES):
            self._above[k] += _won(share, value, self.mean)
            self._below[k] += _won(share, 1 - value, 1 - self.mean)
        self.above = max(self.above, _mix(self._above))
        self.below = max(self.below, _mix(self._below))


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known after some groups."""

    groups: int
    mean: float
    low: float
    high: float
    """An interval that holds the mean at all times at once."""

    @property
    def decided(self) -> int:
        """1 where the mean is above one half, -1 where it is below, 0 while neither is sure."""
        return 1 if self.low > EVEN else -1 if self.high < EVEN else 0


def bar(level: float = LEVEL) -> float:
    """Return the log capital at which a side wins its bet: 2 / alpha, for there are two sides."""
    return math.log(2 / (1 - level))


def decide(values: Iterable[float], level: float = LEVEL) -> Decision | None:
    """Return the mean of groups' values so far with its anytime-valid interval; None without any.

    Values are 0 to 1, in the order in which they came.
    """
    seen = list(values)
    if not seen:
        return None
    mean = math.fsum(seen) / len(seen)
    low = _end(seen, 0.0, mean, bar(level), above=True)
    high = _end(seen, 1.0, mean, bar(level), above=False)
    return Decision(len(seen), mean, low, high)


def stops_at(values: Iterable[float], level: float = LEVEL) -> tuple[int, int]:
    """Return (groups, 1 or -1) where one half is first ruled out, (groups in all, 0) where it
    never is."""
    play, count = Betting(), 0
    for count, value in enumerate(values, 1):
        play.feed(value)
        if max(play.above, play.below) >= bar(level):
            return count, 1 if play.above > play.below else -1
    return count, 0


def _won(share: float, value: float, mean: float) -> float:
    """Return the log of what a stake comes to; a value above a mean of 0 wins everything."""
    if mean <= 0:
        return math.inf if value > 0 else 0.0
    return math.log1p(share * (value / mean - 1))


def _mix(logs: list[float]) -> float:
    """Return the log of the gamblers' mean capital."""
    most = max(logs)
    if math.isinf(most):
        return most
    return most + math.log(sum(math.exp(one - most) for one in logs) / len(logs))


def _end(seen: list[float], out: float, inside: float, wanted: float, *, above: bool) -> float:
    """Return the end of the interval between `out`, the end of the range, and the mean."""
    low, high = out, inside
    for _ in range(STEPS):
        middle = (low + high) / 2
        if _capital(seen, middle, above=above) >= wanted:
            low = middle
        else:
            high = middle
    return low


def _capital(seen: list[float], mean: float, *, above: bool) -> float:
    """Return the largest log capital ever of one side's bets against a mean."""
    import numpy as np

    values = np.asarray(seen) if above else 1 - np.asarray(seen)
    against = mean if above else 1 - mean
    if against <= 0:
        return math.inf if values.max() > 0 else 0.0
    logs = np.log1p(np.outer(SHARES, values / against - 1)).cumsum(axis=1)
    most = logs.max(axis=0)
    return max(0.0, float((most + np.log(np.exp(logs - most).mean(axis=0))).max()))
