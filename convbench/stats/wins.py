"""Win rates of two policies whose conversations a judge compared in both orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from convbench.stats.estimates import ErrorKind, Estimate, estimate


class Duel(NamedTuple):
    """A judge's preferences for the first policy's conversation, from 0 to 1: when it is shown
    first, and when it is shown second."""

    group: str
    ahead: float
    behind: float


class Wins(NamedTuple):
    """Win rate of one policy over another, a tie half a win; the share of pairs in which the order
    decides."""

    rate: Estimate
    wins: int
    ties: int
    losses: int
    flips: float


def win_rate(duels: Sequence[Duel], kind: ErrorKind = "clustered") -> Wins | None:
    """Return the win rate of the first policy, over both orders; None without a duel."""
    values = [(duel.ahead + duel.behind) / 2 for duel in duels]
    rate = estimate([duel.group for duel in duels], values, kind)
    if rate is None:
        return None
    wins, ties = sum(value > 0.5 for value in values), values.count(0.5)
    # Both orders prefer the place, not the conversation.
    flips = sum((duel.ahead - 0.5) * (duel.behind - 0.5) < 0 for duel in duels)
    return Wins(rate, wins, ties, len(duels) - wins - ties, flips / len(duels))
