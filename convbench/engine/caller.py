"""One call from journal to reply: replay, budget, limiter, hard timeout, retries."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from convbench.engine.booking import Booked, book, bound
from convbench.engine.budget import Budget
from convbench.engine.gate import enter, idle
from convbench.engine.journal import Journal, call_hash
from convbench.engine.limiter import Limiter
from convbench.engine.need import size_of
from convbench.engine.status import Status
from convbench.errors import ConvbenchError, FatalModelError, TransientModelError, Usage
from convbench.models.aliases import SCHEMES
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.model import Model
from convbench.schema import Completion, Message, Sampling, text_of


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How hard the engine tries. Times in seconds."""

    concurrency: int = 64
    """Most calls at once to one endpoint."""
    timeout_s: float = 120.0
    """Longest one attempt may take; a `patient` model has none."""
    tries: int = 8
    """Most attempts of a call that fail other than by 429."""
    backoff_s: float = 0.5
    """First wait before another try; doubled each time."""
    longest_s: float = 30.0
    """Longest wait of the backoff."""
    retry_after_s: float = 120.0
    """Longest Retry-After that is waited for; a longer one is cut to this."""
    patience_s: float = 1800.0
    """Longest one call is held up by 429 before it fails."""
    dead: int = 10
    """Calls of one endpoint that used up their tries in a row before the run stops."""


class Caller:
    """Makes model calls for jobs. One per command; every call of a run goes through it."""

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
        self._limiters: dict[str, Limiter] = {}
        self._answered: set[str] = set()
        self._exhausted: dict[str, int] = {}
        self._checked: set[str] = set()
        self._starting: dict[str, asyncio.Future[None]] = {}

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply to `messages`: from the journal if this call is finished there.

        Raises TransientModelError when all tries failed, FatalModelError at once where none can
        help, BudgetError before a call that could pass the budget, Stopped while the run stops.
        """
        if self.journal is None:
            return (await self._asked(model, messages, sampling, key)).completion
        hash = call_hash(model.ref, sampling, messages)
        found = self.journal.get(key, hash)
        if found is not None:
            self.status.replayed += 1
            return found
        reply = await self._asked(model, messages, sampling, key)
        self.journal.append(key, hash, reply.completion, reply.attempt, reply.booked)
        return reply.completion

    def limiter(self, model: Model) -> Limiter:
        """Return the limiter of a model's endpoint."""
        name = model.endpoint
        if name not in self._limiters:
            highest = model.concurrency or self.retry.concurrency
            self._limiters[name] = Limiter(highest)
            self.status.endpoints[name] = self._limiters[name].state
        return self._limiters[name]

    async def started(self, model: Model) -> None:
        """Start a model that must be (a server, weights to load), once, before the first call."""
        if not model.starts:
            return
        waiting = self._starting.get(model.endpoint)
        if waiting is None:
            waiting = self._starting[model.endpoint] = asyncio.ensure_future(model.start())
            self.status.note = f"starting {model.ref}"
            waiting.add_done_callback(self._ready)
        await asyncio.shield(waiting)

    def _ready(self, start: asyncio.Future[None]) -> None:
        self.status.note = ""
        self.status.ready = time.monotonic()
        if not start.cancelled():
            start.exception()  # seen here, so that asyncio does not complain of an unseen one

    def answered(self, model: Model) -> None:
        """Note that an endpoint works."""
        self._answered.add(model.endpoint)
        self._exhausted[model.endpoint] = 0

    def known(self, model: Model) -> bool:
        """Return whether this endpoint has ever answered."""
        return model.endpoint in self._answered

    def exhausted(self, model: Model, error: TransientModelError, tries: int) -> Exception:
        """Return the error of a call whose tries are used up; fatal once the endpoint is dead."""
        name = model.endpoint
        self._exhausted[name] = self._exhausted.get(name, 0) + 1
        if self._exhausted[name] >= self.retry.dead:
            return FatalModelError(
                f"{model.ref}: {self._exhausted[name]} calls in a row failed after {tries} tries "
                f"each, the last with: {error}; resume when the provider is well"
            )
        return TransientModelError(f"{error} (after {tries} tries)")

    async def _asked(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str
    ) -> _Reply:
        if model.ref not in self._checked:
            self.budget.check(model)
            self._checked.add(model.ref)
        return await _Call(self, model, messages, sampling, key).run()


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply, the attempt that gave it and what that was booked with."""

    completion: Completion
    attempt: str | None
    booked: Booked


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
        self.limiter = caller.limiter(model)
        self.size = size_of(model, messages, sampling)
        self.rates = caller.budget.rates(model)
        self.tries = 0
        self.limited = 0
        self.held_up = 0.0

    async def run(self) -> _Reply:
        await self.caller.started(self.model)
        while True:
            enter()
            try:
                reply = await self._attempt()
            except TransientModelError as error:
                await self._wait(error)
            else:
                self.caller.answered(self.model)
                return reply

    async def _attempt(self) -> _Reply:
        """One attempt within limiter and budget; what it used is counted however it ends."""
        async with self.limiter.slot() as sent:
            enter()
            budget = self.caller.budget
            with idle():
                await budget.reserve(self.rates, self.size)
            try:
                enter()
                reply = await self._booked()
                self.limiter.succeeded()
                return reply
            except TransientModelError as error:
                if error.rate_limited:
                    self.limiter.limited(sent, self._retry_after(error))
                raise
            finally:
                budget.release(self.rates, self.size)

    async def _booked(self) -> _Reply:
        """Send the call and book it: what was told of it, or its bound."""
        attempt = self._begin()
        try:
            completion = await self._send()
        except BaseException as error:
            self._lose(attempt, error)
            raise
        return _Reply(*self._count(completion, attempt))

    async def _send(self) -> Completion:
        limit = None if self.model.patient else self.retry.timeout_s
        try:
            async with asyncio.timeout(limit):
                return await self.model.complete(self.messages, self.sampling, key=self.key)
        except TimeoutError:
            raise BrokenReply(f"{self.model.ref}: no reply within {limit or 0:g} s") from None

    def _begin(self) -> str | None:
        """Write ahead that an attempt is made; None where nobody bills or keeps it."""
        if self.caller.journal is None or runs_here(self.model):
            return None
        return self.caller.journal.attempts.begin(self.key, self.rates.likely(self.size))

    def _count(
        self, completion: Completion, attempt: str | None
    ) -> tuple[Completion, str | None, Booked]:
        """Book an answered call; return it with what was told of it and can be."""
        said = Usage(completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)
        thoughts = completion.reasoning.text if completion.reasoning else ""
        shown = thoughts + text_of(completion.content)
        received = len(shown.encode("utf-8", "replace"))
        booked, told = self._book(said, received)
        self.caller.budget.book(booked)
        self.status.calls += 1
        self._show(booked, told)
        if told != said:
            completion = replace(
                completion,
                prompt_tokens=told.prompt_tokens,
                completion_tokens=told.completion_tokens,
                cost_usd=told.cost_usd,
            )
        return completion, attempt, booked

    def _lose(self, attempt: str | None, error: BaseException) -> None:
        """Book an attempt that was sent and may be billed though it gave nothing usable."""
        told: Usage | None = getattr(error, "usage", None)
        booked: Booked | None = None
        if told is not None:
            booked, told = self._book(told)
        elif not runs_here(self.model) and not _unbilled(error):
            booked = bound(self.size, self.rates)
        if booked is not None:
            self.caller.budget.book(booked, lost=True)
            self._show(booked, told or Usage())
        if attempt is not None and self.caller.journal is not None:
            why = " ".join(str(error).split())[:200] or type(error).__name__
            self.caller.journal.attempts.end(attempt, booked, why)

    def _book(self, told: Usage, received: int = 0) -> tuple[Booked, Usage]:
        """Return the booking of an answer; a model that runs here counts its tokens itself."""
        if runs_here(self.model):
            prompt, reply = told.prompt_tokens or 0, told.completion_tokens or 0
            self.rates.learn(self.size, prompt, reply, 0.0)
            return Booked(prompt + reply, told.cost_usd or 0.0), told
        return book(told, self.size, self.rates, received)

    def _show(self, booked: Booked, told: Usage) -> None:
        self.status.prompt_tokens += told.prompt_tokens or 0
        self.status.completion_tokens += told.completion_tokens or 0
        self.status.cost_usd += booked.usd or 0.0
        self.status.cost_unknown = self.status.cost_unknown or booked.usd is None

    async def _wait(self, error: TransientModelError) -> None:
        """Wait before another try, or raise because there were enough."""
        if error.rate_limited:
            self.limited += 1
        else:
            self.tries += 1
        self._give_up(error)
        wait = self._backoff(error)
        if error.rate_limited:
            self.held_up += wait
        self.status.retries += 1
        self.status.retrying += 1
        try:
            with idle():
                await asyncio.sleep(wait)
        finally:
            self.status.retrying -= 1

    def _give_up(self, error: TransientModelError) -> None:
        if isinstance(error, Unreachable) and self.tries >= 3 and not self.caller.known(self.model):
            raise FatalModelError(str(error)) from None
        if self.tries >= self.retry.tries or self.held_up > self.retry.patience_s:
            raise self.caller.exhausted(self.model, error, self.tries + self.limited) from None

    def _backoff(self, error: TransientModelError) -> float:
        """Return seconds to wait: exponential with full jitter, at least Retry-After."""
        tries = self.limited if error.rate_limited else self.tries
        grown = min(self.retry.backoff_s * 2.0 ** (min(tries, 20) - 1), self.retry.longest_s)
        wait = random.uniform(grown / 2, grown)
        return max(wait, self._retry_after(error) or 0.0)

    def _retry_after(self, error: TransientModelError) -> float | None:
        if error.retry_after is None:
            return None
        return min(max(0.0, error.retry_after), self.retry.retry_after_s)


def runs_here(model: Model) -> bool:
    """Return whether a model runs on this machine, where nobody bills a call."""
    return model.ref.partition(":")[0] in SCHEMES


def _unbilled(error: BaseException) -> bool:
    """Return whether an attempt that failed without a word of usage costs nothing: it was not
    sent, or refused before any work. A server's fault, a lost connection or a timeout may cost."""
    if isinstance(error, TransientModelError):
        return error.rate_limited or isinstance(error, Unreachable)
    return isinstance(error, ConvbenchError)
