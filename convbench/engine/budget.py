"""One budget of dollars and tokens for a whole run, checked before each call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from convbench.errors import BudgetError
from convbench.models.base import Model
from convbench.schema import ImagePart, Message, Sampling, text_of

CHARS_PER_TOKEN = 3.0
"""Characters a token in estimates: low for English (about 4), so that estimates lie high."""
MESSAGE_TOKENS = 4
"""Tokens a chat template puts around a message, in estimates."""
IMAGE_TOKENS = 1500
"""Tokens of an image in estimates."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a call may cost at most: tokens, and dollars where the price is known."""

    tokens: int
    usd: float | None


def prompt_tokens(messages: Sequence[Message]) -> int:
    """Return an estimate, on the high side, of the tokens of a prompt."""
    total = 0.0
    for message in messages:
        content = message["content"]
        total += MESSAGE_TOKENS + len(text_of(content)) / CHARS_PER_TOKEN
        if not isinstance(content, str):
            total += IMAGE_TOKENS * sum(isinstance(part, ImagePart) for part in content)
    return int(total) + 1


def estimate(model: Model, messages: Sequence[Message], sampling: Sampling) -> Estimate:
    """Return what a call costs if it uses all of `max_tokens` (and of the model's headroom for
    reasoning that is billed and not shown)."""
    prompt = prompt_tokens(messages)
    reply = sampling.max_tokens + int(getattr(model, "headroom", 0))
    price = getattr(model, "price", None)
    usd = price(prompt, reply) if price else (0.0 if model.priced else None)
    return Estimate(prompt + reply, usd)


class Budget:
    """Dollars and tokens that all calls of a run share; None is no limit.

    A call is let through only if what is spent, what is reserved by calls in flight and its own
    estimate stay within the limit. Where only reservations stand in the way it waits for them to
    be settled; where the spent money does, BudgetError is raised, before anything is sent.
    """

    def __init__(self, usd: float | None = None, tokens: int | None = None) -> None:
        self.usd = usd
        self.tokens = tokens
        self.spent_usd = 0.0
        self.spent_tokens = 0
        self._reserved_usd = 0.0
        self._reserved_tokens = 0
        self._waiting: list[asyncio.Future[None]] = []

    def check(self, model: Model) -> None:
        """Raise BudgetError where dollars are limited and the model's price is unknown."""
        if self.usd is not None and not model.priced:
            raise BudgetError(
                f"--budget {self.usd:g}: the price of {model.ref} is unknown; "
                "limit tokens instead, e.g. --budget-tokens 2000000"
            )

    def spend(self, tokens: int = 0, usd: float = 0.0) -> None:
        """Count what was spent before, e.g. by the same run before it was resumed."""
        self.spent_tokens += tokens
        self.spent_usd += usd

    async def reserve(self, need: Estimate) -> None:
        """Set `need` aside, or raise BudgetError because the call could pass the limit."""
        while True:
            self._refuse(need)
            if self._fits(need):
                break
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        self._reserved_tokens += need.tokens
        self._reserved_usd += need.usd or 0.0

    def settle(self, need: Estimate, tokens: int = 0, usd: float = 0.0) -> None:
        """Give back what was set aside and count what was really used."""
        self._reserved_tokens -= need.tokens
        self._reserved_usd -= need.usd or 0.0
        self.spend(tokens, usd)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _fits(self, need: Estimate) -> bool:
        usd = self.spent_usd + self._reserved_usd + (need.usd or 0.0)
        tokens = self.spent_tokens + self._reserved_tokens + need.tokens
        return (self.usd is None or usd <= self.usd) and (
            self.tokens is None or tokens <= self.tokens
        )

    def _refuse(self, need: Estimate) -> None:
        if self.usd is not None and self.spent_usd + (need.usd or 0.0) > self.usd:
            raise BudgetError(
                f"budget: ${self.spent_usd:.4f} of ${self.usd:g} is spent and the next call may "
                f"cost ${need.usd or 0.0:.4f}; resume with a larger --budget"
            )
        if self.tokens is not None and self.spent_tokens + need.tokens > self.tokens:
            raise BudgetError(
                f"budget: {self.spent_tokens} of {self.tokens} tokens are spent and the next call "
                f"may use {need.tokens}; resume with a larger --budget-tokens"
            )
