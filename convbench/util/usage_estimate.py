"""Upper estimates of calls to models, which dry runs report, and their sums."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ConfigDict

from convbench.util.described import DescribedModel


class Tokens(DescribedModel):
    """Upper estimate of what a command takes, reported by a dry run."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    conversations: int
    """Conversations, or verdicts of a judge."""
    calls: int
    """Calls of models."""
    prompt_tokens: int
    """Approximate tokens sent."""
    reply_tokens: int
    """Most tokens generated."""
    usd: float | None
    """Most dollars; null if a price is unknown."""

    @property
    def tokens(self) -> int:
        """Return the tokens sent and generated together."""
        return self.prompt_tokens + self.reply_tokens


def add_tokens(parts: Iterable[Tokens]) -> Tokens:
    """Return the sum of estimates; `usd` is None if one of theirs is.

    Without estimates all values are 0.
    """
    estimates = list(parts)
    dollars = [part.usd for part in estimates]
    return Tokens(
        conversations=sum(part.conversations for part in estimates),
        calls=sum(part.calls for part in estimates),
        prompt_tokens=sum(part.prompt_tokens for part in estimates),
        reply_tokens=sum(part.reply_tokens for part in estimates),
        usd=None if None in dollars else sum(usd or 0.0 for usd in dollars),
    )
