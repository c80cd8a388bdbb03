"""Policies against each other: win rate, flips by order, and intervals that hold at any time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from convbench.stats.means import Estimate, estimate


@dataclass(frozen=True, slots=True)
class Duel:
    """One pair of conversations: how far the judge prefers the first policy's, 0 to 1."""

    group: str
    """The independent unit."""
    ahead: float
    """Where the first policy's conversation was shown first."""
    behind: float
    """Where it was shown second."""
    one: str = ""
    """conversation_id of the first policy's."""
    other: str = ""
    """conversation_id of the second policy's."""

    @property
    def value(self) -> float:
        """What it is worth to the first policy."""
        return (self.ahead + self.behind) / 2

    @property
    def flip(self) -> int:
        """1 where each order preferred what it showed first, -1 where what it showed second; 0
        where the order did not choose the winner."""
        if self.ahead > 0.5 > self.behind:
            return 1
        return -1 if self.ahead < 0.5 < self.behind else 0


@dataclass(frozen=True, slots=True)
class Wins:
    """What duels come to."""

    rate: Estimate
    """Win rate of the first policy."""
    wins: int
    ties: int
    losses: int
    flips: Estimate
    """Share of duels whose winner the order chose."""
    to_first: int
    """Those of them in which each order preferred what it showed first."""
    first: Estimate
    """How far what is shown first is preferred, whichever it is; one half where the place does not
    count."""


def wins(duels: Iterable[Duel]) -> Wins | None:
    """Return win rate, flips and the pull of the first place; None without a duel."""
    found = list(duels)
    rate = estimate((one.group, one.value) for one in found)
    flips = estimate((one.group, float(one.flip != 0)) for one in found)
    first = estimate((one.group, (one.ahead + 1 - one.behind) / 2) for one in found)
    if rate is None or flips is None or first is None:
        return None
    return Wins(
        rate=rate,
        wins=sum(one.value > 0.5 for one in found),
        ties=sum(one.value == 0.5 for one in found),
        losses=sum(one.value < 0.5 for one in found),
        flips=flips,
        to_first=sum(one.flip == 1 for one in found),
        first=first,
    )


def by_group(duels: Iterable[Duel], order: Sequence[str]) -> list[float]:
    """Return the mean value of each group's duels, in this order of groups; groups without a duel
    are left out."""
    found: dict[str, list[float]] = {}
    for one in duels:
        found.setdefault(one.group, []).append(one.value)
    return [sum(found[name]) / len(found[name]) for name in order if name in found]


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
