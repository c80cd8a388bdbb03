"""Two policies against each other: win rate, flips by order, the pull of the place.

A duel is two conversations about the same question, judged in both orders. It is worth the mean of
both to the first policy: 1 for a win, 0 for a loss, a tie one half. The win rate is the mean over
duels, with the standard error clustered by group (`convbench.stats.estimate`; where each duel is
its own group this is the standard error of a mean, as AlpacaEval publishes it: Dubois et al.,
arXiv 2404.04475, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from convbench.stats.estimate import Estimate, estimate


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
