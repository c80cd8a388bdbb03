"""Make model calls: replay from the journal, cache, batch, budget, slots, timeout, retries.

    caller = Caller(Journal(run.calls_file), Budget(usd=5))
    reply = await caller.complete(model, messages, Sampling(max_tokens=64), key="3f…#0@1")

A key names one call for good: with an unchanged prompt a resumed run gets this reply from the
journal and pays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench.engine.budget import Budget, Estimate, call_estimate
from convbench.engine.jobs import check_gate, or_stop
from convbench.engine.journal import Journal, call_hash
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


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Settings of retries, in numbers and seconds. An attempt has `timeout_s`, with more than 1,024
    tokens of reply longer in proportion. A call ends after so many tries, or `empty_tries` that
    gave no text; those by 429 do not count, but wait for `patience_s` in all. The run stops once so
    many calls of an endpoint fail for good (`dead`), or results are `unreadable`, in a row."""

    concurrency: int = 64
    """Most calls at once to one endpoint."""
    timeout_s: float = 120.0
    tries: int = 8
    empty_tries: int = 3
    backoff_s: float = 0.5
    """First wait before another try; doubled each time up to `longest_s`."""
    longest_s: float = 30.0
    retry_after_s: float = 120.0
    """Longest Retry-After that is obeyed; a longer one is shortened to this."""
    patience_s: float = 1800.0
    dead: int = 10
    unreadable: int = 10

    def backoff_seconds(self, error: TransientModelError, tries: int) -> float:
        """Return the seconds to wait after `tries` failed attempts (from 1), at least Retry-After:
        a random number between half of and the whole of the backoff."""
        grown = min(self.backoff_s * 2.0 ** (min(tries, 20) - 1), self.longest_s)
        return max(random.uniform(grown / 2, grown), self.seconds_asked(error))

    def seconds_asked(self, error: TransientModelError) -> float:
        """Return the Retry-After of an error, at most `retry_after_s`; 0 without."""
        return min(error.retry_after or 0.0, self.retry_after_s)


@dataclass(frozen=True, slots=True)
class Call:
    """One model call. Key and hash name it in the journal; `priced` is the model, or its batches,
    at whose price it `need`s at most so much."""

    model: Model
    messages: Sequence[Message]
    sampling: Sampling
    key: str
    hash: str
    need: Estimate
    priced: Any


@dataclass
class Caller:
    """Makes the model calls of all jobs of a command. Without a journal no reply is kept; without a
    cache none of earlier runs is reused. Callers with the same `pauses` (endpoint → end) wait
    together when an endpoint asks."""

    journal: Journal | None = None
    budget: Budget = field(default_factory=Budget)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    status: Status = field(default_factory=Status)
    cache: ReplyCache | None = None
    pauses: dict[str, float] = field(default_factory=dict)
    batches: Any = None
    """The `engine.batches.BatchQueue` of calls that go in batches; None sends each individually."""

    def __post_init__(self) -> None:
        self.status.paused = self.pauses
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._starting: dict[str, asyncio.Future[None]] = {}
        self._answered, self._failed_in_a_row = set[str](), Counter[str]()

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply: from the journal if it holds this call, else from the cache, a batch or
        the model; then it is booked and journalled.

        Raise TransientModelError when all tries failed, FatalModelError at once if none can help,
        BudgetError before a call that could exceed the budget, Stopped while the run stops.
        """
        hash, name, completion = "", "", None
        if self.journal is not None:
            hash = call_hash(model.ref, sampling, messages)
            if (completion := self.journal.take(key, hash)) is not None:
                self.status.replayed += 1
                return completion
            if self.cache is not None and model.identity is not None:
                name = reply_name(model.ref, model.identity, messages, sampling, key)
                if (completion := self.cache.get(name)) is not None:
                    self.status.cached += 1
                    self.journal.append(key, hash, completion, used=Estimate(0, 0.0))
                    return completion
        self.budget.check_price(model)
        await self.ensure_started(model)
        need = call_estimate(messages, sampling, model.headroom, model.price)
        call = Call(model, messages, sampling, key, hash, need, model)
        completion = await self._ask(call)
        if self.cache is not None and name:
            self.cache.put(name, completion)
        return completion

    async def _ask(self, call: Call) -> Completion:
        """Return the reply of a batch or of a call of its own, after as many tries as help."""
        retry, model = self.retry, call.model
        tries, empty, limited, waited = 0, 0, 0, 0.0
        while True:
            check_gate()
            new = model.endpoint not in self._answered
            try:
                reply: Completion | None = self.batches and await self.batches.ask(call)
                return reply or await self._attempt(call)
            except TransientModelError as raised:
                error = raised
            except UnclearRefusal as refusal:
                if not new or (count := self._count_failure(model)) < retry.dead:
                    raise
                line = f"{model.ref}: the first {count} calls were refused, the last with:"
                raise FatalModelError(f"{line} {refusal}") from None
            limited += error.rate_limited
            tries += not error.rate_limited
            empty += isinstance(error, EmptyReply)
            if new and tries >= 3 and isinstance(error, Unreachable):
                raise FatalModelError(str(error)) from None
            if tries >= retry.tries or empty >= retry.empty_tries or waited > retry.patience_s:
                if (count := self._count_failure(model)) < retry.dead:
                    raise TransientModelError(f"{error} (after {tries + limited} tries)") from None
                raise FatalModelError(
                    f"{model.ref}: {count} calls in a row failed after {tries + limited} tries "
                    f"each, the last with: {error}; resume when the provider works again"
                ) from None
            wait = retry.backoff_seconds(error, limited if error.rate_limited else tries)
            waited += wait if error.rate_limited else 0.0
            self.status.retrying += 1
            try:
                await or_stop(asyncio.sleep(wait))
            finally:
                self.status.retrying -= 1

    async def _attempt(self, call: Call) -> Completion:
        """Return the reply of one attempt, which is settled however it ends."""
        model, name, attempt = call.model, call.model.endpoint, ""
        if (slots := self._slots.get(name)) is None:
            slots = asyncio.Semaphore(model.concurrency or self.retry.concurrency)
            self._slots[name] = slots
        longer = max(1.0, call.sampling.max_tokens / 1024)
        limit = None if model.patient else self.retry.timeout_s * longer
        outcome: Completion | BaseException
        async with slots:
            while (wait := self.pauses.get(name, 0.0) - time.monotonic()) > 0:
                await or_stop(asyncio.sleep(wait))
            await self.budget.hold(call.need)
            try:
                check_gate()
                if self.journal and self.budget.has_limit and not runs_here(model):
                    attempt = self.journal.hold(call.key, call.need)
                async with asyncio.timeout(limit):
                    outcome = await model.complete(call.messages, call.sampling, key=call.key)
            except TimeoutError:
                outcome = BrokenReply(f"{model.ref}: no reply within {limit or 0:g} s")
            except BaseException as error:  # noqa: BLE001 - it is raised below
                outcome = error
                if isinstance(error, TransientModelError) and error.rate_limited:
                    until = time.monotonic() + self.retry.seconds_asked(error)
                    self.pauses[name] = max(self.pauses.get(name, 0.0), until)
            self.settle(call, outcome, attempt)
        if isinstance(outcome, Completion):
            return outcome
        raise outcome

    def settle(self, call: Call, outcome: Completion | BaseException, attempt: str) -> None:
        """Book how an attempt ended, and journal its reply, or why it has none. Without reported
        usage a server error, a lost connection or a timeout may cost, other errors and those of
        requests in a batch do not."""
        here, batched = runs_here(call.model), call.priced is not call.model
        usage: Usage | None = getattr(outcome, "usage", None)
        if isinstance(outcome, Completion):
            prompt, reply, usd = outcome.prompt_tokens, outcome.completion_tokens, outcome.cost_usd
            usage = Usage(prompt or 0, reply or 0, 0.0) if here else Usage(prompt, reply, usd)
            self._answered.add(call.model.endpoint)
            self._failed_in_a_row[call.model.endpoint] = 0
        elif usage is None and not (here or batched):
            limited = isinstance(outcome, TransientModelError) and outcome.rate_limited
            served = isinstance(outcome, TransientModelError) or not isinstance(
                outcome, ConvbenchError
            )
            if served and not limited and not isinstance(outcome, Unreachable):
                usage = Usage()
        lost = not isinstance(outcome, Completion)
        used, assumed = self.budget.settle(call.need, usage, call.priced.price, lost=lost)
        if usage is not None:
            self.status.add_usage(usage, used.usd)
        log.debug("%s %s: %s, %s", call.model.ref, call.key, usage, outcome if lost else "answered")
        if self.journal is None:
            return
        if isinstance(outcome, Completion):
            self.journal.append(call.key, call.hash, outcome, attempt, used if assumed else None)
        elif usage is not None or attempt:
            why = " ".join(str(outcome).split())[:200] or type(outcome).__name__
            self.journal.append_lost(call.key, why, attempt, used)

    async def ensure_started(self, model: Model) -> None:
        """Start a model that needs it (a server, weights to load), once for each endpoint, and wait
        until it is ready. Raise what the start raised, also to every later caller."""
        if not model.starts:
            return
        if (start := self._starting.get(model.endpoint)) is not None:
            await asyncio.shield(start)
            return
        self.status.note = f"starting {model.ref}"
        start = self._starting[model.endpoint] = asyncio.ensure_future(model.start())
        try:
            await asyncio.shield(start)
        finally:
            self.status.note, self.status.ready = "", time.monotonic()

    def _count_failure(self, model: Model) -> int:
        self._failed_in_a_row[model.endpoint] += 1
        return self._failed_in_a_row[model.endpoint]


def runs_here(model: Model) -> bool:
    """Return True for `rule:`, `scripted:`, `local:` and `vllm:` models and for tools, whose calls
    nobody bills."""
    return model.ref.partition(":")[0] in (*SCHEMES, "tools")
