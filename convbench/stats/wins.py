"""Win rates of two policies whose conversations a judge compared in both orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convbench.stats.estimates import ErrorKind, Estimate, estimate


@dataclass(frozen=True, slots=True)
class Duel:
    """One pair of conversations, with the judge's preference for the first policy's from 0 to 1."""

    group: str
    """The independent unit."""
    ahead: float
    """Preference when the first policy's conversation is shown first."""
    behind: float
    """Preference when it is shown second."""

    @property
    def value(self) -> float:
        """Return the mean preference over both orders; one half is a tie."""
        return (self.ahead + self.behind) / 2

    @property
    def flips(self) -> bool:
        """Return whether the order decides: both prefer the place, not the conversation."""
        return (self.ahead - 0.5) * (self.behind - 0.5) < 0


@dataclass(frozen=True, slots=True)
class Wins:
    """Win rate of one policy over another; a tie is half a win."""

    rate: Estimate
    wins: int
    ties: int
    losses: int
    flips: float
    """Share of pairs in which the order decides."""


def win_rate(duels: Sequence[Duel], kind: ErrorKind = "clustered") -> Wins | None:
    """Return the win rate of the first policy; None without a duel."""
    values = [duel.value for duel in duels]
    rate = estimate([duel.group for duel in duels], values, kind)
    if rate is None:
        return None
    return Wins(
        rate,
        sum(value > 0.5 for value in values),
        sum(value == 0.5 for value in values),
        sum(value < 0.5 for value in values),
        sum(duel.flips for duel in duels) / len(duels),
    )
