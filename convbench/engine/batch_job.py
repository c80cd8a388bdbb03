"""Submit one provider batch, poll it, and collect its results.

Every step is written down before it is taken (`batch_record.py`), so that a killed process resumes
without submitting twice: the next process takes over a batch that was created, searches for one
that may have been, and collects results again without counting any twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from convbench.engine.batch_record import SentBatch
from convbench.engine.budget import (
    Budget,
    CallSize,
    Estimate,
    Rates,
    book_usage,
    usage_and_bytes,
    with_usage,
)
from convbench.engine.journal import Journal
from convbench.engine.limiter import RetryPolicy
from convbench.engine.progress import Status
from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.models.batch import Batches, BatchState, Outcome
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.model import Model
from convbench.net.body import BadBody
from convbench.schema import Completion, Message, Sampling

SETTLE_S = 30.0
"""Seconds after which a batch that is not in the provider's list was not created."""
SOONEST_S, LATEST_S = 0.2, 60.0
"""Bounds of the seconds between two polls of a batch, which are a fifth of its age."""
TRANSFER_S = 1800.0
"""Longest time in seconds to send requests, or to receive results."""
LEAST_BYTES, CALL_BYTES, MOST_BYTES = 16 << 20, 256 << 10, 4 << 30
"""Most bytes of results that are read: CALL_BYTES for each call, within the other two."""
LISTED = 0.5
"""Seconds between two searches of the provider's list."""

T = TypeVar("T")


class BatchNotSent(Exception):
    """A batch was not created, through no fault of its calls: they go with the next batch."""


@dataclass(frozen=True)
class BatchContext:
    """Objects and settings that all batches of a command share."""

    journal: Journal
    budget: Budget
    retry: RetryPolicy
    status: Status
    wait_s: float | None = None
    """Seconds that a batch may take; then it is cancelled, and its unanswered calls are made
    individually. None: as long as the provider takes."""
    collect_only: bool = False
    """Send no new batch; only wait for those that earlier processes sent."""
    counts: Counter[str] = field(default_factory=Counter)
    """Outcomes of the calls of all ended batches, by kind."""
    known: set[str] = field(default_factory=set)
    """The provider's names of batches that are known to be ours."""


@dataclass(eq=False)
class PendingCall:
    """A call that waits for its reply."""

    model: Model
    batches: Batches
    messages: Sequence[Message]
    sampling: Sampling
    key: str
    hash: str
    size: CallSize
    since: float
    """`time.monotonic()` when the call was made."""
    done: asyncio.Future[Completion] = field(init=False)


class BatchJob:
    """A batch in progress. `tell` is called with a pending call and its reply or error, `look`
    after each poll."""

    def __init__(
        self,
        context: BatchContext,
        sent: SentBatch,
        batches: Batches,
        rates: Rates,
        tell: Callable[[PendingCall, Completion | Exception], None],
        look: Callable[[], None],
    ) -> None:
        self.context, self.sent, self.batches, self.rates = context, sent, batches, rates
        self.tell, self.look = tell, look
        self.waiting: dict[int, PendingCall] = {}
        """Pending calls, by the number of the request."""
        self.answered: set[int] = set()
        """Numbers of the requests whose reply is in the journal."""
        self.early: dict[int, Completion] = {}
        """Replies that no pending call has claimed yet, by the number of the request."""
        self.held = Estimate(sent.tokens, sent.usd)
        """The part of the budget reserved for it."""
        self.state: BatchState | None = None
        self.cut = False
        """True once it was cancelled because it took too long."""
        self._errors: dict[int, ModelError] = {}
        self._counts = dict.fromkeys(("repeated", "foreign", "unreadable"), 0)
        self._lost = [0, 0.0]
        self._billed: set[int] = set()
        self._met = False

    async def run_batch(self, lines: Sequence[bytes] | None) -> None:
        """Run the batch to its end; then every reply is in the journal and every pending call has
        ended.

        `lines` are its requests; None if an earlier process had them. Raise BatchNotSent if that
        one did not create the batch or the provider's queue is full, FatalModelError if the
        provider refuses or stays unreachable. After an error pending calls still wait.
        """
        while True:
            if self.sent.batch is None:
                await self._begin_batch(lines)
            self.state = state = await self._poll_until_ended()
            if state.refused is not None:
                self._record_end("failed")
                if state.full:
                    raise BatchNotSent(state.refused)
                raise FatalModelError(f"{self.batches.ref}: batch refused: {state.refused}")
            if await self._collect_results(state):
                break
            self._write_note(other=self.sent.batch)
            if len(self.sent.others) >= self.context.retry.tries:
                ref = self.batches.ref
                raise FatalModelError(f"{ref}: no batch in the provider's list holds our calls")
        self._end_calls(state.status)

    def fail_calls(self, error: Exception) -> None:
        """End all pending calls with an error; none is pending afterwards."""
        for pending in tuple(self.waiting.values()):
            self.tell(pending, error)
        self.waiting.clear()

    @property
    def calls_left(self) -> int:
        """Return the number of requests without a reply in the journal, failed ones included."""
        return len(self.sent.calls) - len(self.answered)

    # ------------------------------------------------------------------ to the provider

    async def _begin_batch(self, lines: Sequence[bytes] | None) -> None:
        if lines is None:
            await self._find_batch()
            return
        mark = self.sent.mark
        if self.sent.file is None:
            try:
                file = await self._with_retries(
                    lambda: self.batches.upload_requests(mark, lines), TRANSFER_S
                )
            except FatalModelError:
                self._record_end("refused")
                raise
            if file is not None:
                self._write_note(file=file)
        batch = await self._search_list(0.0) if self.sent.others else None
        if batch is not None:
            self._record_begun(batch, guessed=True)
            return
        self._record_begun(*await self._create_batch(lines))

    async def _find_batch(self) -> None:
        """Find the batch that an earlier process may have created.

        Raise BatchNotSent if there is none.
        """
        impossible = self.batches.uploads and self.sent.file is None
        until = max(self.sent.at + SETTLE_S, time.time() + SETTLE_S / 3)
        batch = None if impossible else await self._search_list(until)
        if batch is None:
            self._record_end("never sent")
            raise BatchNotSent(f"{self.batches.ref}: the batch was not created")
        self._record_begun(batch, guessed=True)

    async def _create_batch(self, lines: Sequence[bytes]) -> tuple[str, bool]:
        """Create the batch exactly once; return (its name, whether it was found in the list).

        Before a retry the provider's list is searched, unless the failure is certain."""
        tries, since = 0, time.monotonic()
        while True:
            try:
                async with asyncio.timeout(TRANSFER_S):
                    batch = await self.batches.create_batch(self.sent.mark, self.sent.file, lines)
                    return batch, False
            except (TimeoutError, TransientModelError) as raised:
                error = _as_transient(raised, self.batches.ref)
            except FatalModelError as refused:
                if not isinstance(refused, BadBody):  # after that one it may have been created
                    self._record_end("refused")
                raise
            tries += 1
            if not error.rate_limited and not isinstance(error, Unreachable):
                listed_batch = await self._search_list(time.time() + SETTLE_S)
                if listed_batch is not None:
                    return listed_batch, True
            await self._wait_or_fail(error, tries, since)

    async def _search_list(self, until: float) -> str | None:
        """Return the batch with our mark from the provider's list; None if there is none by
        `until`."""
        sent, others = self.sent, self.context.known | self.sent.others
        while True:
            names = await self._with_retries(
                lambda: self.batches.find_batches(sent.mark, sent.file, sent.begun, len(sent.calls))
            )
            if ours := [name for name in names if name not in others]:
                return ours[0]
            if time.time() >= until:
                return None
            await asyncio.sleep(min(LISTED, max(0.0, until - time.time())))

    def _record_begun(self, batch: str, guessed: bool = False) -> None:
        self.context.known.add(batch)
        self._write_note(batch=batch, guessed=guessed)

    async def _poll_until_ended(self) -> BatchState:
        """Poll the batch until it has ended; return its last state."""
        batch, wait_s = self.sent.batch or "", self.context.wait_s
        while True:
            self.state = state = await self._with_retries(lambda: self.batches.get_state(batch))
            self.look()
            if state.ended:
                return state
            age = time.time() - self.sent.begun
            wait = min(max(SOONEST_S, age / 5), LATEST_S)
            if wait_s is not None and not self.cut:
                if age >= wait_s:
                    await self._cancel_batch(batch)
                wait = min(wait, max(0.0, wait_s - age))
            await asyncio.sleep(wait)

    async def _cancel_batch(self, batch: str) -> None:
        """Cancel a batch that takes too long; an error because it has just ended is ignored."""
        self.cut = True
        with suppress(FatalModelError):
            await self._with_retries(lambda: self.batches.cancel_batch(batch))

    # ------------------------------------------------------------------ from the provider

    async def _collect_results(self, state: BatchState) -> bool:
        """Read all results; return False if they belong to another batch."""

        async def read_results() -> None:
            most = min(max(LEAST_BYTES, CALL_BYTES * len(self.sent.calls)), MOST_BYTES)
            self._errors.clear()
            self._counts = dict.fromkeys(self._counts, 0)
            seen = set[int]()
            try:
                async for item in self.batches.iter_results(self.sent.batch or "", state, most):
                    self._take_result(item, seen)
            except BadBody as error:
                self._counts["cut short"] = 1
                self.context.status.note = str(error)
            self._met = bool(seen)

        await self._with_retries(read_results, TRANSFER_S)
        return self._met or not self.sent.guessed or not self._counts["foreign"]

    def _take_result(self, item: tuple[str, Outcome] | None, seen: set[int]) -> None:
        """Record one line of results: its reply, its error or why it was skipped."""
        number = None if item is None else self.sent.request_number(item[0])
        if item is None or number is None:
            self._counts["unreadable" if item is None else "foreign"] += 1
            return
        if number in seen:
            self._counts["repeated"] += 1
            return
        seen.add(number)
        if number in self.answered:
            return  # collected before, by this or an earlier process
        if isinstance(item[1], Completion):
            self._record_reply(number, item[1])
        else:
            self._record_failure(number, item[1])

    def _record_reply(self, number: int, completion: Completion) -> None:
        """Write a reply to the journal, book it, and end its pending call."""
        call, context = self.sent.calls[number], self.context
        usage, received = usage_and_bytes(completion)
        booked, usage = book_usage(usage, call.size, self.rates, received)
        completion = replace(with_usage(completion, usage), left_out=call.left_out)
        context.journal.append(
            call.key, call.hash, completion, self.sent.request_name(number), booked
        )
        context.budget.book_attempt(booked)
        context.status.calls += 1
        context.status.add_usage(usage, booked.usd)
        self.answered.add(number)
        if (pending := self.waiting.pop(number, None)) is not None:
            self.tell(pending, completion)
        else:
            self.early[number] = completion

    def _record_failure(self, number: int, error: ModelError) -> None:
        """Record why a call has no reply, and book what its failed reply was billed."""
        self._errors[number] = error
        if error.usage is not None and number not in self._billed:
            self._billed.add(number)
            booked, usage = book_usage(error.usage, self.sent.calls[number].size, self.rates)
            self._lost[0] += booked.tokens
            self._lost[1] += booked.usd or 0.0
            self.context.budget.book_attempt(booked, lost=True)
            self.context.status.add_usage(usage, booked.usd)

    def _end_calls(self, status: str) -> None:
        """Record how the batch ended, then end the calls without a reply with an error."""
        self._record_end(status)
        for number, pending in tuple(self.waiting.items()):
            error = self._errors.get(number) or TransientModelError(
                f"{self.batches.ref}: no result in the batch ({status})"
            )
            self.tell(pending, error)
        self.waiting.clear()

    def _record_end(self, status: str) -> None:
        counts = {
            "answered": len(self.answered),
            "failed": len(self._errors),
            "missing": self.calls_left - len(self._errors),
            **self._counts,
        }
        lost = {"tokens": int(self._lost[0]), "usd": self._lost[1]}
        self._write_note(ended=status, counts=counts, lost=lost)
        if self.sent.batch is not None:
            self.context.counts.update(calls=len(self.sent.calls), **counts)

    # ------------------------------------------------------------------ both

    def _write_note(self, **what: object) -> None:
        self.context.journal.submitted.write_note(self.sent, **what)

    async def _with_retries(self, ask: Callable[[], Awaitable[T]], limit: float | None = None) -> T:
        """Return the result of a request, retried while that may help.

        Raises FatalModelError when it no longer does."""
        tries, since = 0, time.monotonic()
        while True:
            try:
                async with asyncio.timeout(limit or self.context.retry.timeout_s):
                    return await ask()
            except (TimeoutError, TransientModelError) as raised:
                error = _as_transient(raised, self.batches.ref)
            tries += 1
            await self._wait_or_fail(error, tries, since)

    async def _wait_or_fail(self, error: TransientModelError, tries: int, since: float) -> None:
        """Wait before another try. Raises FatalModelError to give up; the batch continues."""
        retry = self.context.retry
        lost = isinstance(error, Unreachable) and tries >= 3 and self.state is None
        if lost or time.monotonic() - since > retry.patience_s:
            raise FatalModelError(f"{error}; submitted batches continue; resume later") from None
        self.context.status.retries += 1
        await asyncio.sleep(retry.backoff_seconds(error, tries))


def _as_transient(error: Exception, ref: str) -> TransientModelError:
    return error if isinstance(error, TransientModelError) else BrokenReply(f"{ref}: no answer")
