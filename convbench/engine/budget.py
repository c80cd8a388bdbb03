"""The ledger of dollars and tokens of a command: estimate, hold, settle.

    need = call_estimate(model, messages, sampling)    a token a byte, a reply at full length
    await budget.hold(need)                            waits while others hold what is left
    ... the call ...
    budget.settle(need, Usage(120, 40, 0.002))         what it did not use is free again at once

As many calls are in flight as what is left can pay for, whatever their number.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from convbench.errors import BudgetError, Usage, UsageError
from convbench.models.model import Model
from convbench.schema import ImagePart, Message, Sampling, text_of

FRAME_TOKENS, USUAL_FRAME = 16, 4
"""Most tokens that a chat template adds around a message, and what it usually adds."""
USUAL_TOKEN = 3
"""Bytes per token of usual text: English has about 4, Chinese 3 to 4."""
IMAGE_TOKENS = 1500
LOOK_S = 0.02
"""Seconds between two looks of a call that waits for what others hold."""


class Priced(Protocol):
    """What has a price: a model, or its batches."""

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many tokens; None if the price is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens and dollars that a call may use; `usd` is None if the price is unknown."""

    tokens: int
    usd: float | None


def call_estimate(
    model: Model, messages: Sequence[Message], sampling: Sampling, priced: Priced | None = None
) -> Estimate:
    """Return the most that a call uses: a token for each byte of its prompt and schemas, 16 for
    each message, 1500 for each image, and a reply of `max_tokens` plus the model's headroom.

    `priced` (a model's batches) has another price than the model.
    """
    text, images = _text_and_images(messages)
    schemas = (*sampling.tools, *filter(None, [sampling.reply_schema]))
    prompt = text + FRAME_TOKENS * len(messages) + IMAGE_TOKENS * images
    prompt += sum(len(orjson.dumps(schema)) for schema in schemas)
    reply = sampling.max_tokens + model.headroom
    return Estimate(prompt + reply, (priced or model).price(prompt, reply))


def usual_prompt(messages: Sequence[Message]) -> int:
    """Return an estimate of a prompt's tokens, a little higher than usual and at least 1: three
    bytes of text a token, 4 tokens for each message and 1500 for each image."""
    text, images = _text_and_images(messages)
    return text // USUAL_TOKEN + USUAL_FRAME * len(messages) + IMAGE_TOKENS * images + 1


def _text_and_images(messages: Sequence[Message]) -> tuple[int, int]:
    """Return (bytes of text, number of images) of messages."""
    text = images = 0
    for message in messages:
        content = message["content"]
        text += len(text_of(content).encode("utf-8", "replace"))
        text += sum(len(call.arguments.encode()) + 64 for call in message.get("tool_calls", ()))
        if "reasoning" in message:
            text += len(message["reasoning"].model_dump_json())
        if not isinstance(content, str):
            images += sum(isinstance(part, ImagePart) for part in content)
    return text, images


@dataclass
class Spend:
    """A number of attempts, with their tokens and dollars; an unknown price adds 0."""

    attempts: int = 0
    tokens: int = 0
    usd: float = 0.0

    def add(self, used: Estimate) -> None:
        """Add one attempt."""
        self.attempts += 1
        self.tokens += used.tokens
        self.usd += used.usd or 0.0


class Budget:
    """Dollars and tokens that all calls of a command share, over all its runs; None is no limit.

    Threads with event loops of their own may share it. A call is admitted if what is spent, what
    other calls hold and what it may need stay within the limit. So the limit is passed only by what
    a provider bills beyond a token a byte and beyond `max_tokens`.
    """

    def __init__(self, usd: float | None = None, tokens: int | None = None) -> None:
        self.set_limits(usd, tokens)
        self.all, self.before, self.lost, self.assumed = Spend(), Spend(), Spend(), Spend()
        """Total spend; its parts before this command, without a usable reply, and with unreported
        usage."""
        self.unpriced = False
        """True once a call's price was not known."""
        self._held = Spend()
        self._counted: set[str] = set()
        self._lock = threading.RLock()

    @property
    def has_limit(self) -> bool:
        """Return True if dollars or tokens are limited."""
        return self.usd is not None or self.tokens is not None

    def set_limits(self, usd: float | None, tokens: int | None) -> None:
        """Set both limits, each None for none. Raise UsageError if the dollars are NaN."""
        if usd is not None and math.isnan(usd):
            raise UsageError("--budget: found nan; expected dollars, e.g. 5 or 0.25")
        self.usd, self.tokens = usd, tokens

    def check_price(self, model: Model) -> None:
        """Raise BudgetError if dollars are limited and the model's price is unknown."""
        if self.usd is not None and not model.priced:
            raise BudgetError(
                f"--budget {self.usd:g}: the price of {model.ref} is unknown; "
                "limit tokens instead, e.g. --budget-tokens 2000000"
            )

    def add_earlier(self, tokens: int, usd: float) -> None:
        """Add what was spent before this command; negative amounts take back what was added."""
        with self._lock:
            for account in (self.all, self.before):
                account.tokens += tokens
                account.usd += usd

    def count_earlier(self, name: str, tokens: int, usd: float) -> None:
        """Add what the run `name` had spent before this command, once."""
        with self._lock:
            if name not in self._counted:
                self._counted.add(name)
                self.add_earlier(tokens, usd)

    def has_counted(self, name: str) -> bool:
        """Return True if `count_earlier` was called for this run."""
        return name in self._counted

    async def hold(self, need: Estimate) -> None:
        """Wait until a call may be made, and hold what it may need until `settle`.

        Raise BudgetError if it does not fit though nothing else is held.
        """
        while not self.try_hold(need):
            await asyncio.sleep(LOOK_S)  # an end in another thread's loop counts too

    def try_hold(self, need: Estimate) -> bool:
        """Hold what a call may need and return True, if it fits next to what others hold; else
        return False, or raise BudgetError if nothing else is held."""
        with self._lock:
            if self._fits(need):
                self._held.add(need)
                return True
            if not self._held.attempts:  # no end of another call can make room
                raise BudgetError(self._refusal(need))
            return False

    def settle(
        self, need: Estimate, usage: Usage | None, priced: Priced, *, lost: bool = False
    ) -> Estimate:
        """Release what a call held, and book and return what it used.

        `usage` is None for a call that nobody bills, such as one that was refused. An unreported
        count is booked at what was held, and counted in `assumed`. `lost`: it gave no usable reply.
        """
        used, assumed = used_of(need, usage, priced)
        with self._lock:
            if usage is not None:
                self.book(used, assumed=assumed, lost=lost)
            self._release(need)
        return used

    def book(self, used: Estimate, *, assumed: bool = False, lost: bool = False) -> None:
        """Add one attempt to what is spent."""
        with self._lock:
            self.all.add(used)
            self.unpriced = self.unpriced or used.usd is None
            if lost:
                self.lost.add(used)
            if assumed:
                self.assumed.add(used)

    def _release(self, need: Estimate) -> None:
        """Release what a call held."""
        self._held.attempts -= 1
        self._held.tokens -= need.tokens
        self._held.usd -= need.usd or 0.0
        if not self._held.attempts:
            self._held.usd = 0.0  # what rounding leaves over

    def _fits(self, need: Estimate) -> bool:
        usd = self.all.usd + self._held.usd + (need.usd or 0.0)
        tokens = self.all.tokens + self._held.tokens + need.tokens
        return (self.usd is None or usd <= self.usd) and (
            self.tokens is None or tokens <= self.tokens
        )

    def _refusal(self, need: Estimate) -> str:
        if self.usd is not None and self.all.usd + (need.usd or 0.0) > self.usd:
            return (
                f"budget: ${self.all.usd:.4f} of ${self.usd:g} is spent and the next call may "
                f"cost ${need.usd or 0.0:.4f}; resume with a larger --budget"
            )
        return (
            f"budget: {self.all.tokens} of {self.tokens} tokens are spent and the next call "
            f"may use {need.tokens}; resume with a larger --budget-tokens"
        )


def used_of(need: Estimate, usage: Usage | None, priced: Priced) -> tuple[Estimate, bool]:
    """Return (what a call used, whether that is assumed): the reported usage, what was held where
    it is not reported, and nothing without a usage."""
    if usage is None:
        return Estimate(0, 0.0), False
    prompt, reply, usd = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
    if prompt is None or reply is None:
        return Estimate(need.tokens, need.usd if usd is None else usd), True
    return Estimate(prompt + reply, priced.price(prompt, reply) if usd is None else usd), False


def format_spend(ledger: Budget) -> str:
    """Return the spend on one line: dollars, tokens, what was spent before, failed and assumed
    attempts.

    It is empty without an attempt, and if nothing cost anything, no price is unknown and nothing is
    limited.
    """
    billed = ledger.all.usd or ledger.unpriced or ledger.has_limit
    return " · ".join(_spend_parts(ledger)) if ledger.all.attempts and billed else ""


def _spend_parts(ledger: Budget) -> Iterator[str]:
    limit = "" if ledger.usd is None else f" of ${ledger.usd:g}"
    known = "" if ledger.unpriced and not ledger.all.usd else f"${ledger.all.usd:.4f}{limit}"
    yield " + ".join(part for part in (known, "cost unknown" * ledger.unpriced) if part)
    most = "" if ledger.tokens is None else f" of {ledger.tokens:,}"
    yield f"{ledger.all.tokens:,}{most} tokens"
    if ledger.before.tokens or ledger.before.usd:
        yield f"before this command {_amount_text(ledger.before)}"
    for spend, what in (
        (ledger.lost, "without a usable reply"),
        (ledger.assumed, "with unreported usage, counted at the most that it may be:"),
    ):
        if spend.attempts:
            count = f"{spend.attempts} attempt{'' if spend.attempts == 1 else 's'}"
            yield f"{count} {what} {_amount_text(spend)}"


def _amount_text(spend: Spend) -> str:
    return f"${spend.usd:.4f}" if spend.usd else f"{spend.tokens:,} tokens"
