"""Make model calls: replay from the journal, cache, batch, budget, slots, timeout, retries.

    caller = Caller(Journal(run.calls_file), Budget(usd=5))
    reply = await caller.complete(model, messages, Sampling(max_tokens=64), key="3f…#0@1")

A key names one call for good: with an unchanged prompt a resumed run gets this reply from the
journal and pays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol

from convbench.engine.budget import Budget, Estimate, call_estimate, used_of
from convbench.engine.jobs import check_gate, pause
from convbench.engine.journal import Journal, call_hash
from convbench.engine.limiter import Limiter, RetryPolicy
from convbench.engine.progress import Status
from convbench.engine.reply_cache import ReplyCache, reply_name
from convbench.errors import (
    BrokenReply,
    ConvbenchError,
    FatalModelError,
    TransientModelError,
    Unreachable,
    Usage,
)
from convbench.models.aliases import SCHEMES
from convbench.models.model import Model
from convbench.models.parameters import UnclearRefusal
from convbench.models.replies import EmptyReply
from convbench.schema import Completion, Message, Sampling

log = logging.getLogger("convbench.calls")


class Waves(Protocol):
    """Makes calls in batches, a wave at a time (`engine.batches.BatchQueue`)."""

    async def collect_open(self) -> None:
        """Wait for the batches that earlier processes sent."""

    async def ask(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str, hash: str
    ) -> Completion | None:
        """Return the reply of a call, journalled; None if it is to be made individually."""


class Caller:
    """Makes the model calls of all jobs of a command."""

    def __init__(
        self,
        journal: Journal | None = None,
        budget: Budget | None = None,
        retry: RetryPolicy | None = None,
        status: Status | None = None,
        cache: ReplyCache | None = None,
        pauses: dict[str, float] | None = None,
    ) -> None:
        """Without a journal no reply is kept; without a cache none of earlier runs is reused.
        Callers with the same `pauses` (endpoint → end) wait together when an endpoint asks."""
        self.journal, self.cache = journal, cache
        self.budget = budget or Budget()
        self.retry = retry or RetryPolicy()
        self.status = status or Status()
        self.batches: Waves | None = None
        """The queue of calls that are sent in batches; None sends each individually."""
        self.pauses = {} if pauses is None else pauses
        self._limiters: dict[str, Limiter] = {}
        self._answered: set[str] = set()
        self._failed_in_a_row: dict[str, int] = {}
        self._unreadable_in_a_row = 0
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
            return await self._ask(model, messages, sampling, key, "")
        hash = call_hash(model.ref, sampling, messages)
        completion = self.journal.get(key, hash)
        if completion is not None:
            self.status.replayed += 1
            return completion
        name, identity = "", model.identity
        if self.cache is not None and identity is not None:
            name = reply_name(model.ref, identity, messages, sampling, key)
            completion = self.cache.get(name)
            if completion is not None:
                self.status.cached += 1
                self.journal.append(key, hash, completion, booked=Estimate(0, 0.0))
                return completion
        if self.batches is not None:
            self.budget.check_price(model)
            completion = await self.batches.ask(model, messages, sampling, key, hash)
        if completion is None:
            completion = await self._ask(model, messages, sampling, key, hash)
        if self.cache is not None and name:
            self.cache.put(name, completion)
        return completion

    async def _ask(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str, hash: str
    ) -> Completion:
        """Return the reply of a call of its own, after as many tries as help."""
        self.budget.check_price(model)
        await self.ensure_started(model)
        need = call_estimate(model, messages, sampling)
        tries, empty, limited, waited = 0, 0, 0, 0.0
        while True:
            check_gate()
            try:
                completion = await self._attempt(model, messages, sampling, key, hash, need)
            except TransientModelError as raised:
                error = raised
            except UnclearRefusal as refusal:
                self._count_refusal(model, refusal)
                raise
            else:
                self.note_answered(model)
                return completion
            if error.rate_limited:
                limited += 1
            else:
                tries += 1
            empty += isinstance(error, EmptyReply)
            retry = self.retry
            if isinstance(error, Unreachable) and tries >= 3 and not self.has_answered(model):
                raise FatalModelError(str(error)) from None
            spent = tries >= retry.tries or empty >= retry.empty_tries
            if spent or waited > retry.patience_s:
                raise self.exhausted_error(model, error, tries + limited) from None
            wait = retry.backoff_seconds(error, limited if error.rate_limited else tries)
            waited += wait if error.rate_limited else 0.0
            self.status.retries += 1
            self.status.retrying += 1
            try:
                await pause(wait)
            finally:
                self.status.retrying -= 1

    async def _attempt(
        self,
        model: Model,
        messages: Sequence[Message],
        sampling: Sampling,
        key: str,
        hash: str,
        need: Estimate,
    ) -> Completion:
        """Return the reply of one attempt, journalled; what it used is booked however it ends."""
        limiter = self._limiter_of(model)
        billed = not runs_here(model)
        async with limiter.slot():
            await self.budget.hold(need)
            usage: Usage | None = None
            attempt, lost, since = None, True, time.monotonic()
            why: BaseException | None = None
            try:
                check_gate()
                if billed and self.journal is not None and self.budget.has_limit:
                    attempt = self.journal.hold(key, need)
                completion = await self._send(model, messages, sampling, key)
                usage, lost = _usage_of(completion), False
                if not billed:
                    usage = Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0, 0.0)
                if self.journal is not None:
                    used, assumed = used_of(need, usage, model)
                    self.journal.append(key, hash, completion, attempt, used if assumed else None)
                return completion
            except BaseException as error:
                if usage is None:
                    usage = getattr(error, "usage", None)
                    if usage is None and billed and not _is_unbilled(error):
                        usage = Usage()
                if isinstance(error, TransientModelError) and error.rate_limited:
                    limiter.pause_for(self.retry.retry_after(error))
                    self.status.paused[model.endpoint] = limiter.paused_until
                why = error
                raise
            finally:
                used = self.budget.settle(need, usage, model, lost=lost)
                self.status.calls += not lost
                if usage is not None:
                    self.status.add_usage(usage, used.usd)
                if self.journal is not None and lost and (usage is not None or attempt):
                    line = " ".join(str(why).split())[:200] or type(why).__name__
                    self.journal.append_lost(key, line, attempt, used)
                if log.isEnabledFor(logging.DEBUG):
                    took = time.monotonic() - since
                    log.debug("%s %s: %.3f s, %s", model.ref, key, took, why or usage)

    async def _send(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str
    ) -> Completion:
        limit = None if model.patient else self.retry.seconds_for(sampling.max_tokens)
        try:
            async with asyncio.timeout(limit):
                return await model.complete(messages, sampling, key=key)
        except TimeoutError:
            raise BrokenReply(f"{model.ref}: no reply within {limit or 0:g} s") from None

    def _limiter_of(self, model: Model) -> Limiter:
        name = model.endpoint
        if name not in self._limiters:
            self._limiters[name] = Limiter(
                name, model.concurrency or self.retry.concurrency, self.pauses
            )
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
        self._failed_in_a_row[model.endpoint] = 0

    def has_answered(self, model: Model) -> bool:
        """Return True if this model's endpoint has answered a call of this caller."""
        return model.endpoint in self._answered

    def exhausted_error(self, model: Model, error: TransientModelError, tries: int) -> Exception:
        """Count a call whose tries are used up and return its error, without raising it.

        It is a FatalModelError that stops the run once too many calls of the endpoint in a row have
        failed, else a TransientModelError.
        """
        count = self._count_failure(model)
        if count >= self.retry.dead:
            return FatalModelError(
                f"{model.ref}: {count} calls in a row failed after {tries} tries each, the last "
                f"with: {error}; resume when the provider works again"
            )
        return TransientModelError(f"{error} (after {tries} tries)")

    def _count_refusal(self, model: Model, refusal: UnclearRefusal) -> None:
        """Count a call that was refused nobody knows why; raise a FatalModelError that stops the
        run if an endpoint that has never answered refuses too many."""
        if not self.has_answered(model):
            count = self._count_failure(model)
            if count >= self.retry.dead:
                raise FatalModelError(
                    f"{model.ref}: the first {count} calls were refused, the last with: {refusal}"
                ) from None

    def _count_failure(self, model: Model) -> int:
        name = model.endpoint
        self._failed_in_a_row[name] = self._failed_in_a_row.get(name, 0) + 1
        return self._failed_in_a_row[name]

    def count_unreadable(self, fault: str | None) -> FatalModelError | None:
        """Count a result that could not be parsed because of `fault`; None ends the series.

        Return, without raising it, the error that stops the run after too many in a row, else None.
        """
        self._unreadable_in_a_row = 0 if fault is None else self._unreadable_in_a_row + 1
        if self._unreadable_in_a_row < self.retry.unreadable:
            return None
        return FatalModelError(
            f"{self._unreadable_in_a_row} results in a row could not be parsed, the last: {fault}; "
            "look at the replies (convbench view) and change the prompt or the model before you "
            "resume"
        )


def runs_here(model: Model) -> bool:
    """Return True for `rule:`, `scripted:`, `local:` and `vllm:` models and for tools, whose calls
    nobody bills."""
    return model.ref.partition(":")[0] in (*SCHEMES, "tools")


def _usage_of(completion: Completion) -> Usage:
    return Usage(completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)


def _is_unbilled(error: BaseException) -> bool:
    """Return True if an attempt that failed without reported usage costs nothing: it was not sent,
    or refused before any work. A server error, a lost connection or a timeout may cost."""
    if isinstance(error, TransientModelError):
        return error.rate_limited or isinstance(error, Unreachable)
    return isinstance(error, ConvbenchError)
