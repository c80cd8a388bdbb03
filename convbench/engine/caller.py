"""Make model calls: replay from the journal, budget, limiter, hard timeout, retries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from convbench.engine.budget import (
    Booking,
    Budget,
    book_usage,
    bound_booking,
    size_of,
    usage_and_bytes,
    with_usage,
)
from convbench.engine.gathering import note_reply_time
from convbench.engine.jobs import check_gate, idle_wait
from convbench.engine.journal import Journal, call_hash
from convbench.engine.limiter import Limiter, PrefixGate, RetryPolicy
from convbench.engine.progress import Status
from convbench.engine.reply_cache import ReplyCache, reply_name
from convbench.errors import ConvbenchError, FatalModelError, TransientModelError, Usage
from convbench.models.aliases import SCHEMES
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.model import Model
from convbench.schema import Completion, Message, Sampling

if TYPE_CHECKING:
    from convbench.engine.batch_queue import BatchQueue

T = TypeVar("T")

LONG = 64 << 10
"""Most characters that are processed in the event loop; longer texts go to a thread."""


async def offload_read(read: Callable[[], T], texts: Iterable[str]) -> T:
    """Return what `read` returns; it runs in a thread if these texts have over 65,536 characters
    together.

    A thread helps only if no single step is long: a regular expression holds the interpreter until
    it is done, so every pattern applied to a reply must take time linear in its length. Exceptions
    of `read` pass, in a thread StopIteration as RuntimeError.
    """
    if sum(map(len, texts)) <= LONG:
        return read()
    return await asyncio.to_thread(_without_stop, read)


def _without_stop(read: Callable[[], T]) -> T:
    """Return what `read` returns. StopIteration, which no future accepts, becomes RuntimeError."""
    try:
        return read()
    except StopIteration as error:
        raise RuntimeError("a function raised StopIteration") from error


log = logging.getLogger("convbench.calls")


class Caller:
    """Makes the model calls of all jobs of a command."""

    def __init__(
        self,
        journal: Journal | None = None,
        budget: Budget | None = None,
        retry: RetryPolicy | None = None,
        status: Status | None = None,
    ) -> None:
        self.journal = journal
        self.budget = budget or Budget()
        self.retry = retry or RetryPolicy()
        self.status = status or Status()
        self.cache: ReplyCache | None = None
        """Replies of earlier runs; None reuses none."""
        """Rate of calls to an endpoint; None leaves it to the limiter."""
        self.batch_queue: BatchQueue | None = None
        """The queue of calls that are sent in batches; None sends each individually."""
        self._limiters: dict[str, Limiter] = {}
        self._answered: set[str] = set()
        self._exhausted: dict[str, int] = {}
        self._unreadable = 0
        self._checked: set[str] = set()
        self._priming = PrefixGate()
        self._starting: dict[str, asyncio.Future[None]] = {}

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply: from the journal if it holds this call, else from the cache, a batch or
        the model.

        A new reply is booked and journalled, and cached if there is a cache. Raise
        TransientModelError when all tries failed, FatalModelError at once if none can help,
        BudgetError before a call that could exceed the budget, Stopped while the run stops.
        """
        if self.journal is None:
            return (await self._ask_model(model, messages, sampling, key)).completion
        hash = call_hash(model.ref, sampling, messages)
        completion = self.journal.get(key, hash)
        if completion is not None:
            self.status.replayed += 1
            return completion
        name = self._cache_name(model, messages, sampling, key)
        if name is not None and self.cache is not None:
            completion = self.cache.get(name)
            if completion is not None:
                self.status.cached += 1
                self.journal.append(key, hash, completion)
                return completion
        if self.batch_queue is not None:
            self._check_budget(model)
            waved = await self.batch_queue.ask_in_batch(model, messages, sampling, key, hash)
            if waved is not None:
                self._cache_reply(name, waved)
                return waved
        reply = await self._ask_model(model, messages, sampling, key)
        self.journal.append(key, hash, reply.completion, reply.attempt, reply.booked)
        self._cache_reply(name, reply.completion)
        return reply.completion

    def _cache_name(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str
    ) -> str | None:
        """Return the name of a reply in the cache; None if it is not cached: no cache, or a model
        whose replies are not cached."""
        if self.cache is None or (identity := model.identity) is None:
            return None
        return reply_name(model.ref, identity, messages, sampling, key)

    def _cache_reply(self, name: str | None, completion: Completion) -> None:
        if self.cache is not None and name is not None:
            self.cache.put(name, completion)

    def limiter_of(self, model: Model) -> Limiter:
        """Return the limiter of a model's endpoint, created at first use, with its state shown in
        the status."""
        name = model.endpoint
        if name not in self._limiters:
            highest = model.concurrency or self.retry.concurrency
            self._limiters[name] = Limiter(highest)
            self.status.endpoints[name] = self._limiters[name].state
        return self._limiters[name]

    async def ensure_started(self, model: Model) -> None:
        """Start a model that needs it (a server, weights to load), once for each endpoint; wait
        until it is ready.

        Raise what the start raised, also to every later caller.
        """
        if not model.starts:
            return
        waiting = self._starting.get(model.endpoint)
        if waiting is None:
            waiting = self._starting[model.endpoint] = asyncio.ensure_future(model.start())
            self.status.note = f"starting {model.ref}"
            waiting.add_done_callback(self._on_started)
        await asyncio.shield(waiting)

    def _on_started(self, start: asyncio.Future[None]) -> None:
        self.status.note = ""
        self.status.ready = time.monotonic()
        if not start.cancelled():
            start.exception()  # retrieved, so that asyncio does not report it as unretrieved

    def note_answered(self, model: Model) -> None:
        """Record that a model's endpoint has answered, which ends a series of failed calls."""
        self._answered.add(model.endpoint)
        self._exhausted[model.endpoint] = 0

    def has_answered(self, model: Model) -> bool:
        """Return True if this model's endpoint has answered a call of this caller."""
        return model.endpoint in self._answered

    def exhausted_error(self, model: Model, error: TransientModelError, tries: int) -> Exception:
        """Count a call whose tries are used up and return its error, without raising it.

        It is a FatalModelError once too many calls of the endpoint in a row have failed, else a
        TransientModelError.
        """
        name = model.endpoint
        self._exhausted[name] = self._exhausted.get(name, 0) + 1
        if self._exhausted[name] >= self.retry.dead:
            return FatalModelError(
                f"{model.ref}: {self._exhausted[name]} calls in a row failed after {tries} tries "
                f"each, the last with: {error}; resume when the provider works again"
            )
        return TransientModelError(f"{error} (after {tries} tries)")

    def count_unreadable(self, fault: str | None) -> FatalModelError | None:
        """Count a result that could not be parsed because of `fault`; None ends the series.

        Return, without raising it, the error that stops the run after too many in a row, else None.
        """
        self._unreadable = 0 if fault is None else self._unreadable + 1
        if self._unreadable < self.retry.unreadable:
            return None
        return FatalModelError(
            f"{self._unreadable} results in a row could not be parsed, the last: {fault}; look at "
            "the replies (convbench view) and change the prompt or the model before you resume"
        )

    def use_batches(self, wait_s: float | None, *, collect_only: bool = False) -> BatchQueue:
        """Send calls in batches from now on, if their model has batches, by the queue that is
        returned, which is to be closed. A journal is needed.

        `collect_only` waits for the batches of earlier processes and sends none. A call that waited
        `wait_s` seconds for its batch is sent individually; None waits as long as it takes.
        """
        from convbench.engine.batch_job import BatchContext
        from convbench.engine.batch_queue import BatchQueue

        assert self.journal is not None
        context = BatchContext(
            self.journal, self.budget, self.retry, self.status, wait_s, collect_only
        )
        self.batch_queue = BatchQueue(
            context, self.ensure_started, self.note_answered, self.exhausted_error
        )
        return self.batch_queue

    def _check_budget(self, model: Model) -> None:
        """Raise BudgetError for a model that the budget cannot count; checked once a model."""
        if model.ref not in self._checked:
            self.budget.check_price(model)
            self._checked.add(model.ref)

    async def _ask_model(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str
    ) -> _Reply:
        self._check_budget(model)
        async with self._priming.enter(model, messages):
            return await _Call(self, model, messages, sampling, key).get_reply()


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply with the name of its attempt and its booking."""

    completion: Completion
    attempt: str | None
    booked: Booking


class _Call:
    """One call and its attempts."""

    def __init__(
        self,
        caller: Caller,
        model: Model,
        messages: Sequence[Message],
        sampling: Sampling,
        key: str,
    ) -> None:
        self.caller, self.model, self.key = caller, model, key
        self.messages, self.sampling = messages, sampling
        self.retry, self.status = caller.retry, caller.status
        self.limiter = caller.limiter_of(model)
        self.size = size_of(model, messages, sampling)
        self.rates = caller.budget.rates_of(model)
        self.tries = 0
        self.limited = 0
        self.held_up = 0.0

    async def get_reply(self) -> _Reply:
        await self.caller.ensure_started(self.model)
        while True:
            check_gate()
            try:
                reply = await self._attempt_once()
            except TransientModelError as error:
                await self._wait_or_raise(error)
            else:
                self.caller.note_answered(self.model)
                return reply

    async def _attempt_once(self) -> _Reply:
        """Return the reply of one attempt within limiter and budget; its usage is booked however it
        ends."""
        async with self.limiter.hold_slot() as sent:
            check_gate()
            budget = self.caller.budget
            await budget.reserve_call(self.rates, self.size)
            try:
                check_gate()
                reply = await self._send_and_book()
                self.limiter.on_success()
                return reply
            except TransientModelError as error:
                if error.rate_limited:
                    self.limiter.on_rate_limit(sent, self.retry.retry_after(error))
                raise
            finally:
                budget.release_call(self.rates, self.size)

    async def _send_and_book(self) -> _Reply:
        """Return the reply of one attempt, booked with its reported usage or its upper bound."""
        attempt, since = self._begin_attempt(), time.monotonic()
        try:
            self.caller.budget.before_attempt()
            completion = await self._send_call()
        except BaseException as error:
            self._log_attempt(since, "%s: %s", type(error).__name__, error)
            self._book_failure(attempt, error)
            raise
        note_reply_time(time.monotonic() - since)
        self._log_attempt(
            since,
            "%s, %s + %s tokens",
            completion.finish_reason,
            completion.prompt_tokens,
            completion.completion_tokens,
        )
        return _Reply(*self._book_reply(completion, attempt))

    def _log_attempt(self, since: float, text: str, *values: object) -> None:
        """Write one attempt to the debug log."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        took = time.monotonic() - since
        log.debug("%s %s: %.3f s, " + text, self.model.ref, self.key, took, *values)

    async def _send_call(self) -> Completion:
        limit = None if self.model.patient else self.retry.seconds_for(self.sampling.max_tokens)
        try:
            async with asyncio.timeout(limit):
                return await self.model.complete(self.messages, self.sampling, key=self.key)
        except TimeoutError:
            raise BrokenReply(f"{self.model.ref}: no reply within {limit or 0:g} s") from None

    def _begin_attempt(self) -> str | None:
        """Record an attempt before it is made and return its name; None if nothing records it."""
        if self.caller.journal is None or runs_here(self.model):
            return None
        return self.caller.journal.begin_attempt(self.key, self.rates.likely_use(self.size))

    def _book_reply(
        self, completion: Completion, attempt: str | None
    ) -> tuple[Completion, str | None, Booking]:
        """Book an answered call; return (reply with plausible usage, attempt, booking)."""
        booked, usage = self._book_usage(*usage_and_bytes(completion))
        self.caller.budget.book_attempt(booked)
        self.status.calls += 1
        self.status.add_usage(usage, booked.usd)
        return with_usage(completion, usage), attempt, booked

    def _book_failure(self, attempt: str | None, error: BaseException) -> None:
        """Book a failed attempt that may be billed, and record why it failed."""
        usage: Usage | None = getattr(error, "usage", None)
        booked: Booking | None = None
        if usage is not None:
            booked, usage = self._book_usage(usage)
        elif not runs_here(self.model) and not _is_unbilled(error):
            booked = bound_booking(self.size, self.rates)
        if booked is not None:
            self.caller.budget.book_attempt(booked, lost=True)
            self.status.add_usage(usage or Usage(), booked.usd)
        if attempt is not None and self.caller.journal is not None:
            why = " ".join(str(error).split())[:200] or type(error).__name__
            self.caller.journal.attempts.end_attempt(attempt, booked, why)

    def _book_usage(self, usage: Usage, received: int = 0) -> tuple[Booking, Usage]:
        """Return (booking, plausible usage) of an answer; the counts of a model that runs here are
        believed."""
        if runs_here(self.model):
            prompt, reply = usage.prompt_tokens or 0, usage.completion_tokens or 0
            self.rates.learn_billing(self.size, prompt, reply, 0.0)
            return Booking(prompt + reply, usage.cost_usd or 0.0), usage
        return book_usage(usage, self.size, self.rates, received)

    async def _wait_or_raise(self, error: TransientModelError) -> None:
        """Wait before another try. Raises FatalModelError or TransientModelError to give up."""
        if error.rate_limited:
            self.limited += 1
        else:
            self.tries += 1
        self._give_up(error)
        wait = self.retry.backoff_seconds(error, self.limited if error.rate_limited else self.tries)
        if error.rate_limited:
            self.held_up += wait
        self.status.retries += 1
        self.status.retrying += 1
        try:
            with idle_wait():
                await asyncio.sleep(wait)
        finally:
            self.status.retrying -= 1

    def _give_up(self, error: TransientModelError) -> None:
        if (
            isinstance(error, Unreachable)
            and self.tries >= 3
            and not self.caller.has_answered(self.model)
        ):
            raise FatalModelError(str(error)) from None
        if self.tries >= self.retry.tries or self.held_up > self.retry.patience_s:
            raise self.caller.exhausted_error(
                self.model, error, self.tries + self.limited
            ) from None


def runs_here(model: Model) -> bool:
    """Return True for `rule:`, `scripted:`, `local:` and `vllm:` models and for tools, whose calls
    nobody bills."""
    return model.ref.partition(":")[0] in (*SCHEMES, "tools")


def _is_unbilled(error: BaseException) -> bool:
    """Return True if an attempt that failed without reported usage costs nothing: it was not sent,
    or refused before any work. A server error, a lost connection or a timeout may cost."""
    if isinstance(error, TransientModelError):
        return error.rate_limited or isinstance(error, Unreachable)
    return isinstance(error, ConvbenchError)
