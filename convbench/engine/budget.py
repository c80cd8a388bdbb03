"""The ledger of dollars and tokens of a command: what a call may use, checked before it is made,
and what it is booked with.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import orjson

from convbench.engine.jobs import idle_wait
from convbench.errors import BudgetError, Usage, UsageError
from convbench.models.batch import Batches
from convbench.models.model import Model
from convbench.schema import Completion, ImagePart, Message, Sampling, text_of

MESSAGE_TOKENS = 16
"""Most tokens that a chat template adds around a message."""
USUAL_FRAME = 4
"""Tokens that it usually adds."""
USUAL_TOKEN = 3
"""Bytes per token of usual text: English has about 4, Chinese 3 to 4."""
IMAGE_TOKENS = 1500
"""Tokens of an image, until replies show better."""
CAUTION = 64.0
"""Factor on a call's bounds for its reservation while no reply has shown how a model bills."""
TRUST = 4.0
"""Smallest such factor, after many replies: a model may change how it bills."""
HALVED = 32
"""Number of replies that halve the caution."""
SPREAD = 1.1
"""Factor on the densest prompt so far, which the next prompt is unlikely to exceed."""


@dataclass(frozen=True, slots=True)
class CallSize:
    """Upper bounds of a call: a byte of text is at most one token, a reply at most its limit."""

    text: int
    """Bytes of the prompt's text, without reasoning that is sent back, which not all bill."""
    prompt: int
    """Most tokens of the prompt."""
    reply: int
    """Most tokens of the reply and of reasoning that is billed but not shown."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of tokens and dollars; `usd` is None if the price is unknown."""

    tokens: float
    usd: float | None


def size_of(model: Model, messages: Sequence[Message], sampling: Sampling) -> CallSize:
    """Return upper bounds of a call: bytes of text, prompt tokens, reply tokens.

    A byte of text or of reasoning sent back counts as a token, each message as 16 more, an image as
    1500, each byte of the schemas of tools and reply; a reply as `max_tokens` plus the model's
    headroom.
    """
    text, images = _text_and_images(messages)
    thoughts = sum(_reasoning_bytes(message) for message in messages if "reasoning" in message)
    schemas = (*sampling.tools, *filter(None, [sampling.reply_schema]))
    prompt = text + thoughts + MESSAGE_TOKENS * len(messages) + IMAGE_TOKENS * images
    prompt += sum(len(orjson.dumps(schema)) for schema in schemas)
    return CallSize(text, prompt, sampling.max_tokens + model.headroom)


def usual_prompt(messages: Sequence[Message]) -> int:
    """Return an estimate of a prompt's tokens, a little higher than usual and at least 1.

    It counts three bytes of text a token, 4 tokens for each message and 1500 for each image.
    """
    text, images = _text_and_images(messages)
    return text // USUAL_TOKEN + USUAL_FRAME * len(messages) + IMAGE_TOKENS * images + 1


def _text_and_images(messages: Sequence[Message]) -> tuple[int, int]:
    """Return (bytes of text, number of images) of messages."""
    text = images = 0
    for message in messages:
        content = message["content"]
        content_text = text_of(content)
        text += (
            len(content_text)
            if content_text.isascii()
            else len(content_text.encode("utf-8", "replace"))
        )
        for call in message.get("tool_calls", ()):
            text += len(call.arguments.encode()) + 64
        if not isinstance(content, str):
            images += sum(isinstance(part, ImagePart) for part in content)
    return text, images


def _reasoning_bytes(message: Message) -> int:
    """Return the bytes of the reasoning sent back with a message."""
    reasoning = message.get("reasoning")
    return len(reasoning.model_dump_json()) if reasoning else 0


class Rates:
    """How one model bills relative to the bounds of its calls, and its calls in flight."""

    def __init__(self, price: Callable[[int, int], float | None]) -> None:
        self._price = price
        self.prompt = self.reply = self.usd = 1.0
        """The most that was billed, as a share of the bound; at least 1."""
        self._dense = 0.0
        self._replies = 0
        self._held_prompt = self._held_reply = 0
        self._lock = threading.Lock()

    def list_price(self, prompt: float, reply: float) -> float | None:
        """Return the list price in dollars of so many tokens, rounded to whole ones; None if it is
        unknown."""
        return self._price(round(prompt), round(reply))

    def learn_billing(self, size: CallSize, prompt: float, reply: float, usd: float | None) -> None:
        """Update the rates with what a reply was billed; they never fall."""
        list_price = self.list_price(prompt, reply)
        with self._lock:
            self._replies += 1
            self._dense = max(self._dense, prompt / size.prompt)
            self.prompt = max(self.prompt, prompt / size.prompt)
            self.reply = max(self.reply, reply / size.reply)
            if usd and list_price:
                self.usd = max(self.usd, usd / list_price)

    def likely_use(self, size: CallSize) -> Estimate:
        """Return what a call will likely use, with a reply of full length.

        Its prompt counts by the densest prompt billed so far, plus a tenth; by its bound before the
        first reply.
        """
        share = self._dense * SPREAD if self._replies else self.prompt
        return self._make_estimate(size.prompt * share, size.reply * self.reply)

    def upper_bound(self, size: CallSize) -> Estimate:
        """Return the most tokens and dollars that a call is billed, if it is billed as earlier ones
        were."""
        return self._make_estimate(size.prompt * self.prompt, size.reply * self.reply)

    def hold_call(self, size: CallSize, sign: int) -> None:
        """Add a call to the calls in flight (`sign` 1) or remove it (-1)."""
        with self._lock:
            self._held_prompt += sign * size.prompt
            self._held_reply += sign * size.reply

    def held_estimate(self) -> Estimate:
        """Return the reservation for all calls in flight together; zero without any.

        It is their upper bound times a factor that falls from 64 to 4 as replies show how the model
        bills.
        """
        margin = max(TRUST, CAUTION * HALVED / (HALVED + self._replies))
        prompt, reply = self._held_prompt * self.prompt, self._held_reply * self.reply
        return self._make_estimate(prompt * margin, reply * margin)

    def _make_estimate(self, prompt: float, reply: float) -> Estimate:
        usd = self.list_price(prompt, reply)
        return Estimate(prompt + reply, None if usd is None else usd * self.usd)


LONGEST_TOKEN = 16
"""Most bytes per token on average; a count of fewer tokens is not believed."""
WORDY_TOKEN = 6
"""Most bytes per token of a reply within its limit; a longer reply has exceeded it."""
LARGEST = 64
"""Largest ratio of a reported count to the call's bound; a larger count is not believed."""
LONGEST_CONTEXT = 10_000_000
"""Most tokens of any model's context."""
OFF_PRICE = 100.0
"""Largest ratio of a reported cost to the list price, either way."""


@dataclass(frozen=True, slots=True)
class Booking:
    """Tokens and dollars booked for one attempt."""

    tokens: int
    usd: float | None
    """None if the price is unknown."""
    assumed: bool = False
    """True if the usage was missing or impossible, so that the upper bound was booked."""


def book_usage(
    usage: Usage, size: CallSize, rates: Rates, received: int = 0
) -> tuple[Booking, Usage]:
    """Return (booking of an answered attempt, its reported usage with impossible values replaced by
    None).

    `received` is the bytes of the reply's text: a count too small for them stays in the usage but
    is not booked. A missing or impossible count is booked by its upper bound, marked `assumed`. The
    rates are updated.
    """
    prompt = _plausible_count(usage.prompt_tokens, size.prompt)
    reply = _plausible_count(usage.completion_tokens, max(size.reply, received))
    sure_prompt, sure_reply = _covering_count(prompt, size.text), _covering_count(reply, received)
    most_reply = _max_reply_tokens(size.reply * rates.reply, received)
    prompts = size.prompt * rates.prompt if sure_prompt is None else sure_prompt
    replies = most_reply if sure_reply is None else sure_reply
    listed = rates.list_price(prompts, replies)
    cost = _plausible_cost(usage.cost_usd, listed)
    usd = listed if cost is None else cost
    unsure = (
        sure_prompt is None or sure_reply is None or (cost is None and usage.cost_usd is not None)
    )
    rates.learn_billing(size, prompts, replies, usd)
    return Booking(math.ceil(prompts + replies), usd, unsure), Usage(prompt, reply, cost)


def usage_and_bytes(completion: Completion) -> tuple[Usage, int]:
    """Return (usage as reported, UTF-8 bytes of the text and of the reasoning's text) of a
    reply."""
    usage = Usage(completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)
    thoughts = completion.reasoning.text if completion.reasoning else ""
    text = thoughts + text_of(completion.content)
    return usage, len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def with_usage(completion: Completion, usage: Usage) -> Completion:
    """Return the reply with this usage in place of its own; the same object if they are equal."""
    same = (completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)
    if same == (usage.prompt_tokens, usage.completion_tokens, usage.cost_usd):
        return completion
    return replace(
        completion,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=usage.cost_usd,
    )


def bound_booking(size: CallSize, rates: Rates) -> Booking:
    """Return the booking, marked `assumed`, of an attempt that was sent but reported nothing.

    It is the upper bound by the model's rates, in whole tokens.
    """
    most = rates.upper_bound(size)
    return Booking(math.ceil(most.tokens), most.usd, assumed=True)


def _plausible_count(count: int | None, most: int) -> int | None:
    """Return the reported token count; None if it is not a count or too large for the bound."""
    if not isinstance(count, int) or isinstance(count, bool):
        return None
    return count if 0 <= count <= min(LARGEST * most, LONGEST_CONTEXT) else None


def _covering_count(count: int | None, text: int) -> int | None:
    """Return the reported token count; None if it implies over LONGEST_TOKEN bytes a token."""
    return count if count is not None and count >= text // LONGEST_TOKEN else None


def _max_reply_tokens(limit: float, received: int) -> float:
    """Return the most tokens of a reply: its limit, or its bytes if its text exceeds the limit."""
    return limit if received <= WORDY_TOKEN * limit else received


def _plausible_cost(cost: float | None, listed: float | None) -> float | None:
    """Return the reported cost; None if it is impossible next to the list price of the tokens."""
    if cost is None or not math.isfinite(cost) or cost < 0:
        return None
    if not listed:
        return cost
    return cost if listed / OFF_PRICE <= cost <= listed * OFF_PRICE else None


NOTHING = Estimate(0.0, 0.0)


@dataclass
class Spend:
    """The number of attempts, with their booked tokens and dollars."""

    attempts: int = 0
    tokens: int = 0
    usd: float = 0.0

    def add_booking(self, booked: Booking) -> None:
        """Add one attempt and its tokens and dollars; an unknown price adds 0 dollars."""
        self.attempts += 1
        self.tokens += booked.tokens
        self.usd += booked.usd or 0.0


class Budget:
    """Dollars and tokens that all calls of a command share, over all its runs; None is no limit.

    A call is admitted only if the spend plus the reservations of all calls in flight, its own
    included, stay within the limit, or if it is alone in flight and its likely use fits. So the
    limit is exceeded by one reply at most, however the provider bills, unless many calls admitted
    at once turn out more expensive than any before. A call waits if only calls in flight stand in
    its way; BudgetError is raised if the spend does.

    Threads with event loops of their own may share it; if it is limited, one loop at a time.
    """

    def __init__(self, usd: float | None = None, tokens: int | None = None) -> None:
        self.set_limits(usd, tokens)
        self.all, self.before, self.lost, self.assumed = Spend(), Spend(), Spend(), Spend()
        """Total spend; its parts before this command, without a usable reply, and with assumed
        usage."""
        self.unpriced = False
        """True once a call's price was not known."""
        self.before_attempt: Callable[[], None] = _allow_all
        """Called before each attempt is sent; raises if no more may be sent."""
        self._counted: set[str] = set()
        self._rates: dict[str, Rates] = {}
        self._flying = 0
        self._sent = {"usd": 0.0, "tokens": 0.0}
        self._waiting: deque[tuple[Rates, CallSize, asyncio.Future[None]]] = deque()
        self._lock = threading.RLock()

    @property
    def has_limit(self) -> bool:
        """Return True if dollars or tokens are limited."""
        return self.usd is not None or self.tokens is not None

    @property
    def spent_usd(self) -> float:
        """Return the known dollars spent, those before this command included."""
        return self.all.usd

    @property
    def spent_tokens(self) -> int:
        """Return the tokens spent, those before this command included."""
        return self.all.tokens

    def check_price(self, model: Model) -> None:
        """Raise BudgetError if dollars are limited and the model's price is unknown."""
        if self.usd is not None and not model.priced:
            raise BudgetError(
                f"--budget {self.usd:g}: the price of {model.ref} is unknown; "
                "limit tokens instead, e.g. --budget-tokens 2000000"
            )

    def set_limits(self, usd: float | None, tokens: int | None) -> None:
        """Set both limits, each None for none. Raise UsageError if the dollars are NaN."""
        if usd is not None and math.isnan(usd):
            raise UsageError("--budget: found nan; expected dollars, e.g. 5 or 0.25")
        self.usd, self.tokens = usd, tokens

    def add_earlier(self, tokens: int = 0, usd: float = 0.0) -> None:
        """Add what was spent before this command, to the total and to its earlier part; attempts
        stay.

        Negative amounts take back what was added.
        """
        with self._lock:
            for account in (self.all, self.before):
                account.tokens += tokens
                account.usd += usd

    def count_earlier(self, name: str, tokens: int, usd: float) -> None:
        """Add what the run `name` had spent before this command; a second call for it changes
        nothing."""
        with self._lock:
            if name not in self._counted:
                self._counted.add(name)
                self.add_earlier(tokens, usd)

    def has_counted(self, name: str) -> bool:
        """Return True if `count_earlier` was called for this run."""
        return name in self._counted

    def rates_of(self, model: Model) -> Rates:
        """Return the rates of a model's ordinary calls: one object for each model reference,
        kept."""
        with self._lock:
            if model.ref not in self._rates:
                self._rates[model.ref] = Rates(model.price)
            return self._rates[model.ref]

    def batch_rates(self, batches: Batches) -> Rates:
        """Return the rates of a model's calls in batches: one object for each model reference,
        kept."""
        with self._lock:
            return self._rates.setdefault(f"{batches.ref} in batches", Rates(batches.price))

    def reserve_batch(self, need: Estimate, *, alone: bool = False, sent: bool = False) -> bool:
        """Reserve the worst case of a call in a batch; return False, reserving nothing, if it does
        not fit now.

        It fits next to the spend and all other reservations. One that is `alone` in flight need
        only fit next to the spend, else BudgetError is raised. One that was `sent` already is
        always reserved.
        """
        with self._lock:
            usd, tokens = self._sent["usd"] + (need.usd or 0.0), self._sent["tokens"] + need.tokens
            if not sent and self.has_limit:
                if alone:
                    self._refuse_if_over(need)
                elif not self._fits_limits(need):
                    return False
            self._sent["usd"], self._sent["tokens"] = usd, tokens
            return True

    def release_batch(self, need: Estimate) -> None:
        """Release a reservation of calls in batches and admit waiting calls that fit now."""
        with self._lock:
            self._sent["usd"] -= need.usd or 0.0
            self._sent["tokens"] -= need.tokens
            if self._sent["tokens"] < 1:  # what rounding leaves over
                self._sent = {"usd": 0.0, "tokens": 0.0}
            self._admit_waiting()

    async def reserve_call(self, rates: Rates, size: CallSize) -> None:
        """Wait until a call is admitted and reserve what it may use.

        Raise BudgetError if its likely use no longer fits next to the spend, so that waiting cannot
        help, and Stopped if the run stops meanwhile.
        """
        with self._lock:
            if not self._waiting and self._admit_call(rates, size):
                return
        with idle_wait():
            await self._wait_for_room(rates, size)

    async def _wait_for_room(self, rates: Rates, size: CallSize) -> None:
        """Wait until released calls make room for this one."""
        with self._lock:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((rates, size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release_call(rates, size)
            raise

    def release_call(self, rates: Rates, size: CallSize) -> None:
        """Release the reservation of a call and admit waiting calls that fit now."""
        with self._lock:
            rates.hold_call(size, -1)
            self._flying -= 1
            self._admit_waiting()

    def book_attempt(self, booked: Booking, *, lost: bool = False) -> None:
        """Add the booking of an attempt to the total; `lost` adds it to the attempts without usable
        reply too.

        Call it before the reservation is released.
        """
        with self._lock:
            self.all.add_booking(booked)
            self.unpriced = self.unpriced or booked.usd is None
            if lost:
                self.lost.add_booking(booked)
            if booked.assumed:
                self.assumed.add_booking(booked)

    def _admit_call(self, rates: Rates, size: CallSize) -> bool:
        """Reserve a call and return True if it may be sent now. Raises BudgetError if waiting
        cannot help."""
        if self.has_limit:
            self._refuse_if_over(rates.likely_use(size))
        rates.hold_call(size, 1)
        if (
            (self._flying or self._sent["tokens"] > 0)
            and self.has_limit
            and not self._fits_limits()
        ):
            rates.hold_call(size, -1)
            return False
        self._flying += 1
        return True

    def _fits_limits(self, more: Estimate = NOTHING) -> bool:
        held = [more, *(rates.held_estimate() for rates in self._rates.values())]
        usd = self.all.usd + self._sent["usd"] + sum(each.usd or 0.0 for each in held)
        tokens = self.all.tokens + self._sent["tokens"] + sum(each.tokens for each in held)
        return (self.usd is None or usd <= self.usd) and (
            self.tokens is None or tokens <= self.tokens
        )

    def _admit_waiting(self) -> None:
        """Admit waiting calls that fit, in the order of their arrival."""
        while self._waiting:
            rates, size, waiter = self._waiting[0]
            try:
                if not waiter.done():
                    if not self._admit_call(rates, size):
                        return
                    waiter.set_result(None)
            except BudgetError as error:
                waiter.set_exception(error)
            self._waiting.popleft()

    def _refuse_if_over(self, need: Estimate) -> None:
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


def _allow_all() -> None:
    """Allow every attempt."""


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
    if ledger.lost.attempts:
        yield f"{_count_attempts(ledger.lost)} without a usable reply {_amount_text(ledger.lost)}"
    if ledger.assumed.attempts:
        yield (
            f"{_count_attempts(ledger.assumed)} with missing or impossible usage, counted at "
            f"their upper bound: {_amount_text(ledger.assumed)}"
        )


def _count_attempts(spend: Spend) -> str:
    return f"{spend.attempts} attempt{'' if spend.attempts == 1 else 's'}"


def _amount_text(spend: Spend) -> str:
    return f"${spend.usd:.4f}" if spend.usd else f"{spend.tokens:,} tokens"
