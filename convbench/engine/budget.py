"""One ledger of dollars and tokens for a whole command, checked before each call: what a call may
use, and what it is booked with.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from convbench.engine.jobs import idle
from convbench.errors import BudgetError, Usage, UsageError
from convbench.models.batch import Batches
from convbench.models.model import Model
from convbench.schema import Completion, ImagePart, Message, Sampling, text_of

MESSAGE_TOKENS = 16
"""Tokens a chat template may put around a message."""
USUAL_FRAME = 4
"""Tokens it usually puts there."""
USUAL_TOKEN = 3
"""Bytes a token of usual text: English has about 4, Chinese 3 to 4."""
IMAGE_TOKENS = 1500
"""Tokens of an image, until replies tell better."""
CAUTION = 64.0
"""Times its bounds that a call is held for while no reply has told how a model bills."""
TRUST = 4.0
"""Times its bounds that it is held for when many have: a model may change its ways."""
HALVED = 32
"""Replies that halve the caution."""
SPREAD = 1.1
"""Times the densest prompt so far that the next one is likely to be at most."""


@dataclass(frozen=True, slots=True)
class Size:
    """A call's bounds: a byte of text is at most a token, a reply at most what was asked for."""

    text: int
    """Bytes of the prompt's text, without reasoning that is sent back, which not all bill."""
    prompt: int
    """Tokens of the prompt, at most."""
    reply: int
    """Tokens of the reply (and of reasoning that is billed and not shown), at most."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens, and dollars where the price is known."""

    tokens: float
    usd: float | None


def size_of(model: Model, messages: Sequence[Message], sampling: Sampling) -> Size:
    """Return the bounds of a call."""
    text, images = _measured(messages)
    thoughts = sum(_thought(message) for message in messages if "reasoning" in message)
    prompt = text + thoughts + MESSAGE_TOKENS * len(messages) + IMAGE_TOKENS * images
    return Size(text, prompt, sampling.max_tokens + model.headroom)


def usual_prompt(messages: Sequence[Message]) -> int:
    """Return an estimate, on the high side of what is usual, of the tokens of a prompt."""
    text, images = _measured(messages)
    return text // USUAL_TOKEN + USUAL_FRAME * len(messages) + IMAGE_TOKENS * images + 1


def _measured(messages: Sequence[Message]) -> tuple[int, int]:
    """Return the bytes of the messages' text, and how many images they hold."""
    text = images = 0
    for message in messages:
        content = message["content"]
        said = text_of(content)
        text += len(said) if said.isascii() else len(said.encode("utf-8", "replace"))
        for call in message.get("tool_calls", ()):
            text += len(call.arguments.encode()) + 64
        if not isinstance(content, str):
            images += sum(isinstance(part, ImagePart) for part in content)
    return text, images


def _thought(message: Message) -> int:
    """Return the bytes of the reasoning that is sent back with a message."""
    reasoning = message.get("reasoning")
    return len(reasoning.model_dump_json()) if reasoning else 0


class Rates:
    """How one model bills against the bounds of its calls, and the calls of it in flight."""

    def __init__(self, price: Callable[[int, int], float | None]) -> None:
        self._price = price
        self.prompt = self.reply = self.usd = 1.0
        """Most that was billed, as a share of the bound; at least 1."""
        self._dense = 0.0
        self._replies = 0
        self._held_prompt = self._held_reply = 0
        self._lock = threading.Lock()

    def dollars(self, prompt: float, reply: float) -> float | None:
        """Return the list price of so many tokens; None where it is unknown."""
        return self._price(round(prompt), round(reply))

    def learn(self, size: Size, prompt: float, reply: float, usd: float | None) -> None:
        """Take note of what a reply was billed."""
        list_price = self.dollars(prompt, reply)
        with self._lock:
            self._replies += 1
            self._dense = max(self._dense, prompt / size.prompt)
            self.prompt = max(self.prompt, prompt / size.prompt)
            self.reply = max(self.reply, reply / size.reply)
            if usd and list_price:
                self.usd = max(self.usd, usd / list_price)

    def likely(self, size: Size) -> Estimate:
        """Return what a call will use by all that is known, with its reply at full length."""
        share = self._dense * SPREAD if self._replies else self.prompt
        return self._estimate(size.prompt * share, size.reply * self.reply)

    def bound(self, size: Size) -> Estimate:
        """Return what a call may be billed at most, if it is billed as others were."""
        return self._estimate(size.prompt * self.prompt, size.reply * self.reply)

    def hold(self, size: Size, sign: int) -> None:
        """Count a call in flight (1), or no longer (-1)."""
        with self._lock:
            self._held_prompt += sign * size.prompt
            self._held_reply += sign * size.reply

    def held(self) -> Estimate:
        """Return what the calls in flight are held for: the more, the less is known."""
        margin = max(TRUST, CAUTION * HALVED / (HALVED + self._replies))
        prompt, reply = self._held_prompt * self.prompt, self._held_reply * self.reply
        return self._estimate(prompt * margin, reply * margin)

    def _estimate(self, prompt: float, reply: float) -> Estimate:
        usd = self.dollars(prompt, reply)
        return Estimate(prompt + reply, None if usd is None else usd * self.usd)


LONGEST_TOKEN = 16
"""Bytes a token on average, at most: a smaller count is none."""
WORDY_TOKEN = 6
"""Bytes a token of the wordiest reply: a longer one has not kept its limit."""
LARGEST = 64
"""Times the bound of a call that a count may be: a larger one is none."""
LONGEST_CONTEXT = 10_000_000
"""Tokens that no model's context exceeds."""
OFF_PRICE = 100.0
"""Times the list price, or parts of it, that a told cost may be."""


@dataclass(frozen=True, slots=True)
class Booked:
    """What an attempt is booked with."""

    tokens: int
    usd: float | None
    """None where the price is unknown."""
    assumed: bool = False
    """True where nothing was told, or what cannot be: it is booked with what it cost at most."""


def book(told: Usage, size: Size, rates: Rates, received: int = 0) -> tuple[Booked, Usage]:
    """Return what an answered attempt is booked with, and what was told without what cannot be.

    `received` is the bytes of the reply's text. A count below what so many bytes need is kept as
    told and not believed. The model's rates learn from the booking.
    """
    prompt = _possible(told.prompt_tokens, size.prompt)
    reply = _possible(told.completion_tokens, max(size.reply, received))
    sure_prompt, sure_reply = _enough(prompt, size.text), _enough(reply, received)
    most_reply = _most(size.reply * rates.reply, received)
    prompts = size.prompt * rates.prompt if sure_prompt is None else sure_prompt
    replies = most_reply if sure_reply is None else sure_reply
    listed = rates.dollars(prompts, replies)
    cost = _cost(told.cost_usd, listed)
    usd = listed if cost is None else cost
    unsure = (
        sure_prompt is None or sure_reply is None or (cost is None and told.cost_usd is not None)
    )
    rates.learn(size, prompts, replies, usd)
    return Booked(math.ceil(prompts + replies), usd, unsure), Usage(prompt, reply, cost)


def said(completion: Completion) -> tuple[Usage, int]:
    """Return what the provider told of a reply, and the bytes of its text and shown
    thoughts."""
    told = Usage(completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)
    thoughts = completion.reasoning.text if completion.reasoning else ""
    text = thoughts + text_of(completion.content)
    return told, len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def believed(completion: Completion, told: Usage) -> Completion:
    """Return a reply with what was told of it and can be."""
    same = (completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)
    if same == (told.prompt_tokens, told.completion_tokens, told.cost_usd):
        return completion
    return replace(
        completion,
        prompt_tokens=told.prompt_tokens,
        completion_tokens=told.completion_tokens,
        cost_usd=told.cost_usd,
    )


def bound(size: Size, rates: Rates) -> Booked:
    """Return what an attempt is booked with of which nothing is known but that it was sent."""
    most = rates.bound(size)
    return Booked(math.ceil(most.tokens), most.usd, assumed=True)


def _possible(told: int | None, most: int) -> int | None:
    """Return a told count of tokens; None where no call of such a bound has so many, or where it
    is no count."""
    if not isinstance(told, int) or isinstance(told, bool):
        return None
    return told if 0 <= told <= min(LARGEST * most, LONGEST_CONTEXT) else None


def _enough(told: int | None, text: int) -> int | None:
    """Return a count; None where it is too small for so many bytes of text."""
    return told if told is not None and told >= text // LONGEST_TOKEN else None


def _most(limit: float, received: int) -> float:
    """Return the tokens of a reply at most: its limit, unless its text shows that none was kept."""
    return limit if received <= WORDY_TOKEN * limit else received


def _cost(told: float | None, listed: float | None) -> float | None:
    """Return the told cost; None where it cannot be, beside the list price of the tokens."""
    if told is None or not math.isfinite(told) or told < 0:
        return None
    if not listed:
        return told
    return told if listed / OFF_PRICE <= told <= listed * OFF_PRICE else None


NOTHING = Estimate(0.0, 0.0)


@dataclass
class Sum:
    """Attempts and what they were booked with."""

    attempts: int = 0
    tokens: int = 0
    usd: float = 0.0

    def add(self, booked: Booked) -> None:
        """Count an attempt."""
        self.attempts += 1
        self.tokens += booked.tokens
        self.usd += booked.usd or 0.0


class Budget:
    """Dollars and tokens that all calls of a command share, over all its runs; None is no limit.

    A call is let through only if what is spent and what the calls in flight are held for, its own
    share among them, stay within the limit, or if it goes alone and what it will likely use does:
    so the limit is passed by one reply at most, however the provider bills, unless many calls that
    are let through at once turn out dearer than any before. Where only calls in flight stand in
    the way it waits for them; where the spent money does, BudgetError is raised.

    Threads with loops of their own may share it; where it is limited, one loop at a time.
    """

    def __init__(self, usd: float | None = None, tokens: int | None = None) -> None:
        self.limit(usd, tokens)
        self.all, self.before, self.lost, self.assumed = Sum(), Sum(), Sum(), Sum()
        """All that is spent; of it, what was before this command, what gave no reply, and what
        was booked without a word of the provider."""
        self.unpriced = False
        """True once a call's price was not known."""
        self.fence: Callable[[], None] = _open
        """Called before each attempt is sent; raises where none may go any more."""
        self._counted: set[str] = set()
        self._rates: dict[str, Rates] = {}
        self._flying = 0
        self._sent = {"usd": 0.0, "tokens": 0.0}
        self._waiting: deque[tuple[Rates, Size, asyncio.Future[None]]] = deque()
        self._lock = threading.RLock()

    @property
    def limited(self) -> bool:
        """True where there is a limit."""
        return self.usd is not None or self.tokens is not None

    @property
    def spent_usd(self) -> float:
        """Known dollars spent, before this command too."""
        return self.all.usd

    @property
    def spent_tokens(self) -> int:
        """Tokens spent, before this command too."""
        return self.all.tokens

    def check(self, model: Model) -> None:
        """Raise BudgetError where dollars are limited and the model's price is unknown."""
        if self.usd is not None and not model.priced:
            raise BudgetError(
                f"--budget {self.usd:g}: the price of {model.ref} is unknown; "
                "limit tokens instead, e.g. --budget-tokens 2000000"
            )

    def limit(self, usd: float | None, tokens: int | None) -> None:
        """Set the limits. BudgetError for one that is no number."""
        if usd is not None and math.isnan(usd):
            raise UsageError("--budget: found nan; expected dollars, e.g. 5 or 0.25")
        self.usd, self.tokens = usd, tokens

    def spend(self, tokens: int = 0, usd: float = 0.0) -> None:
        """Count what was spent before, e.g. by the same run before it was resumed."""
        with self._lock:
            for account in (self.all, self.before):
                account.tokens += tokens
                account.usd += usd

    def count(self, name: str, tokens: int, usd: float) -> None:
        """Count what a run had spent before this command, once."""
        with self._lock:
            if name not in self._counted:
                self._counted.add(name)
                self.spend(tokens, usd)

    def knows(self, name: str) -> bool:
        """Return whether this run was counted."""
        return name in self._counted

    def rates(self, model: Model) -> Rates:
        """Return what is known of how a model bills."""
        with self._lock:
            if model.ref not in self._rates:
                self._rates[model.ref] = Rates(model.price)
            return self._rates[model.ref]

    def batch_rates(self, batches: Batches) -> Rates:
        """Return what is known of how a model bills in batches."""
        with self._lock:
            return self._rates.setdefault(f"{batches.ref} in batches", Rates(batches.price))

    def hold_sent(self, need: Estimate, *, alone: bool = False, sent: bool = False) -> bool:
        """Hold the worst case of a call that goes in a batch; return whether it fits beside all
        that is held. Where it is `alone` in flight it may go if what is spent leaves room for
        what it will likely use; one that was `sent` already is held in any case."""
        with self._lock:
            usd, tokens = self._sent["usd"] + (need.usd or 0.0), self._sent["tokens"] + need.tokens
            if not sent and self.limited:
                if alone:
                    self._refuse(need)
                elif not self._fits(need):
                    return False
            self._sent["usd"], self._sent["tokens"] = usd, tokens
            return True

    def release_sent(self, need: Estimate) -> None:
        """Hold it no longer; the next may go."""
        with self._lock:
            self._sent["usd"] -= need.usd or 0.0
            self._sent["tokens"] -= need.tokens
            if self._sent["tokens"] < 1:  # what sums of fractions leave over
                self._sent = {"usd": 0.0, "tokens": 0.0}
            self._wake()

    async def reserve(self, rates: Rates, size: Size) -> None:
        """Hold what a call may use, or raise BudgetError because the call could pass the limit."""
        with self._lock:
            if not self._waiting and self._admitted(rates, size):
                return
        with idle():
            await self._queue(rates, size)

    async def _queue(self, rates: Rates, size: Size) -> None:
        """Wait until one that is released makes room."""
        with self._lock:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((rates, size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(rates, size)
            raise

    def release(self, rates: Rates, size: Size) -> None:
        """Hold no longer what a call may use; the next may go."""
        with self._lock:
            rates.hold(size, -1)
            self._flying -= 1
            self._wake()

    def book(self, booked: Booked, *, lost: bool = False) -> None:
        """Count an attempt that was made; before it is released."""
        with self._lock:
            self.all.add(booked)
            self.unpriced = self.unpriced or booked.usd is None
            if lost:
                self.lost.add(booked)
            if booked.assumed:
                self.assumed.add(booked)

    def _admitted(self, rates: Rates, size: Size) -> bool:
        """Hold a call if it may go now; BudgetError where no waiting helps."""
        if self.limited:
            self._refuse(rates.likely(size))
        rates.hold(size, 1)
        if (self._flying or self._sent["tokens"] > 0) and self.limited and not self._fits():
            rates.hold(size, -1)
            return False
        self._flying += 1
        return True

    def _fits(self, more: Estimate = NOTHING) -> bool:
        held = [more, *(rates.held() for rates in self._rates.values())]
        usd = self.all.usd + self._sent["usd"] + sum(each.usd or 0.0 for each in held)
        tokens = self.all.tokens + self._sent["tokens"] + sum(each.tokens for each in held)
        return (self.usd is None or usd <= self.usd) and (
            self.tokens is None or tokens <= self.tokens
        )

    def _wake(self) -> None:
        """Let those go that may, first come, first served."""
        while self._waiting:
            rates, size, waiter = self._waiting[0]
            try:
                if not waiter.done():
                    if not self._admitted(rates, size):
                        return
                    waiter.set_result(None)
            except BudgetError as error:
                waiter.set_exception(error)
            self._waiting.popleft()

    def _refuse(self, need: Estimate) -> None:
        if self.usd is not None and self.all.usd + (need.usd or 0.0) > self.usd:
            raise BudgetError(
                f"budget: ${self.all.usd:.4f} of ${self.usd:g} is spent and the next call may "
                f"cost ${need.usd or 0.0:.4f}; resume with a larger --budget"
            )
        if self.tokens is not None and self.all.tokens + need.tokens > self.tokens:
            raise BudgetError(
                f"budget: {self.all.tokens} of {self.tokens} tokens are spent and the next call "
                f"may use {need.tokens:.0f}; resume with a larger --budget-tokens"
            )


def _open() -> None:
    """Let any attempt go."""


def spending(ledger: Budget) -> str:
    """Return what was spent, lost attempts and what nobody told included; empty where no call
    could cost anything and nothing is limited."""
    billed = ledger.all.usd or ledger.unpriced or ledger.limited
    return " · ".join(_parts(ledger)) if ledger.all.attempts and billed else ""


def _parts(ledger: Budget) -> Iterator[str]:
    limit = "" if ledger.usd is None else f" of ${ledger.usd:g}"
    known = "" if ledger.unpriced and not ledger.all.usd else f"${ledger.all.usd:.4f}{limit}"
    yield " + ".join(part for part in (known, "cost unknown" * ledger.unpriced) if part)
    most = "" if ledger.tokens is None else f" of {ledger.tokens:,}"
    yield f"{ledger.all.tokens:,}{most} tokens"
    if ledger.before.tokens or ledger.before.usd:
        yield f"before this command {_amount(ledger.before)}"
    if ledger.lost.attempts:
        yield f"{_attempts(ledger.lost)} without a reply of use {_amount(ledger.lost)}"
    if ledger.assumed.attempts:
        yield (
            f"{_attempts(ledger.assumed)} of no or impossible usage, counted at the most they may "
            f"have cost: {_amount(ledger.assumed)}"
        )


def _attempts(found: Sum) -> str:
    return f"{found.attempts} attempt{'' if found.attempts == 1 else 's'}"


def _amount(found: Sum) -> str:
    return f"${found.usd:.4f}" if found.usd else f"{found.tokens:,} tokens"
