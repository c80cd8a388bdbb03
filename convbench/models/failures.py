"""Kinds of failed attempts that the engine treats in their own way."""

from __future__ import annotations

from convbench.errors import TransientModelError


class BrokenReply(TransientModelError):
    """A request was sent and gave nothing usable: cut JSON, empty content, a timeout, a reset.

    The provider may bill it; token counts are those it told, None where it told none.
    """

    def __init__(
        self,
        message: str,
        *,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
        cost_usd: float | None = None,
    ) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.cost_usd = cost_usd


class Unreachable(TransientModelError):
    """No connection could be made: nobody listens, no such host. Nothing was sent."""
