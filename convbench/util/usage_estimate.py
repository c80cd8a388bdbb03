"""Upper estimates of calls to models, which dry runs report, and their sums."""

from __future__ import annotations

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
