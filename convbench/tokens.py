"""What calls of models would take at most: told by dry runs, and added up."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ConfigDict

from convbench.described import Described


class Tokens(Described):
    """What a command would take at most, told by a dry run."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    conversations: int
    """Conversations, or verdicts where a judge is asked."""
    calls: int
    """Calls of models."""
    prompt_tokens: int
    """Tokens sent, about."""
    reply_tokens: int
    """Tokens written, at most."""
    usd: float | None
    """Dollars at most; null where a price is unknown."""

    @property
    def tokens(self) -> int:
        """Tokens sent and written."""
        return self.prompt_tokens + self.reply_tokens


def add_tokens(parts: Iterable[Tokens]) -> Tokens:
    """Return what all of them take; a price that is unknown leaves the sum unknown."""
    every = list(parts)
    dollars = [part.usd for part in every]
    return Tokens(
        conversations=sum(part.conversations for part in every),
        calls=sum(part.calls for part in every),
        prompt_tokens=sum(part.prompt_tokens for part in every),
        reply_tokens=sum(part.reply_tokens for part in every),
        usd=None if None in dollars else sum(usd or 0.0 for usd in dollars),
    )
