"""One batch from its intent to its last result, whatever comes in between.

What is about to be done is written down first (`submitted.py`), so that a process that is killed
anywhere here is followed by one that goes on: it takes a batch that was begun for what it is,
looks for one that may have begun, and collects results again without counting any twice.
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
from convbench.engine.budget import Budget, Estimate, Rates, Size, believed, book, said
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
"""Seconds after which a batch that is not in the provider's list was not begun."""
SOONEST_S, LATEST_S = 0.2, 60.0
"""Seconds between two looks at a batch: a fifth of its age, within these."""
TRANSFER_S = 1800.0
"""Longest that requests take to be sent, or results to arrive."""
LEAST_BYTES, CALL_BYTES, MOST_BYTES = 16 << 20, 256 << 10, 4 << 30
"""Bytes of results that are read: so many for each call, within the other two."""
LISTED = 0.5
"""Seconds between two looks into the provider's list."""

T = TypeVar("T")


class NotSent(Exception):
    """A batch was not begun, through no fault of its calls: they go with the next."""


@dataclass(frozen=True)
class Desk:
    """What every batch of a command shares."""

    journal: Journal
    budget: Budget
    retry: RetryPolicy
    status: Status
    wait_s: float | None = None
    """Seconds that a batch may take; then it is ended, and what it did not answer goes as
    ordinary calls. None: as long as the provider takes."""
    collect_only: bool = False
    """Nothing is sent in a batch; what earlier processes sent is waited for."""
    counts: Counter[str] = field(default_factory=Counter)
    """What came of the calls of all batches that ended."""
    known: set[str] = field(default_factory=set)
    """Names of the provider's batches that are some batch of ours."""


@dataclass(eq=False)
class Waiting:
    """A call that waits for its reply."""

    model: Model
    batches: Batches
    messages: Sequence[Message]
    sampling: Sampling
    key: str
    hash: str
    size: Size
    since: float
    """`time.monotonic()` when it was made."""
    done: asyncio.Future[Completion] = field(init=False)


class Flight:
    """A batch under way. `tell` is called with a waiting call and its reply or error; `look` with
    this flight whenever more is known of it."""

    def __init__(
        self,
        desk: Desk,
        sent: SentBatch,
        batches: Batches,
        rates: Rates,
        tell: Callable[[Waiting, Completion | Exception], None],
        look: Callable[[], None],
    ) -> None:
        self.desk, self.sent, self.batches, self.rates = desk, sent, batches, rates
        self.tell, self.look = tell, look
        self.waiting: dict[int, Waiting] = {}
        """Who waits for which of its calls."""
        self.answered: set[int] = set()
        """Calls whose reply is in the journal."""
        self.early: dict[int, Completion] = {}
        """Replies that nobody has asked for yet."""
        self.held = Estimate(sent.tokens, sent.usd)
        """What is held of the budget for it."""
        self.state: BatchState | None = None
        self.cut = False
        """True once it was ended because it took too long."""
        self._errors: dict[int, ModelError] = {}
        self._counts = dict.fromkeys(("repeated", "foreign", "unreadable"), 0)
        self._lost = [0, 0.0]
        self._billed: set[int] = set()
        self._met = False

    async def fly(self, lines: Sequence[bytes] | None) -> None:
        """See it to its end; the journal then has every reply, and all who wait are told.

        `lines` are its requests; None: an earlier process had them. Raises NotSent where that one
        did not begin it, FatalModelError where the provider cannot be asked or refuses.
        """
        while True:
            if self.sent.batch is None:
                await self._begin(lines)
            self.state = state = await self._ended()
            if state.refused is not None:
                self._close("failed")
                if state.full:
                    raise NotSent(state.refused)
                raise FatalModelError(f"{self.batches.ref}: batch refused: {state.refused}")
            if await self._collected(state):
                break
            self._note(other=self.sent.batch)
            if len(self.sent.others) >= self.desk.retry.tries:
                ref = self.batches.ref
                raise FatalModelError(f"{ref}: no batch in the provider's list holds our calls")
        self._end(state.status)

    def fail(self, error: Exception) -> None:
        """Tell all who wait that nothing comes."""
        for waiting in tuple(self.waiting.values()):
            self.tell(waiting, error)
        self.waiting.clear()

    @property
    def left(self) -> int:
        """Calls that have no reply yet."""
        return len(self.sent.calls) - len(self.answered)

    # ------------------------------------------------------------------ to the provider

    async def _begin(self, lines: Sequence[bytes] | None) -> None:
        if lines is None:
            await self._found_or_not()
            return
        mark = self.sent.mark
        if self.sent.file is None:
            try:
                file = await self._patiently(lambda: self.batches.upload(mark, lines), TRANSFER_S)
            except FatalModelError:
                self._close("refused")
                raise
            if file is not None:
                self._note(file=file)
        found = await self._sought(0.0) if self.sent.others else None
        if found is not None:
            self._begun(found, guessed=True)
            return
        self._begun(*await self._created(lines))

    async def _found_or_not(self) -> None:
        """Take up the batch that an earlier process may have begun."""
        impossible = self.batches.uploads and self.sent.file is None
        until = max(self.sent.at + SETTLE_S, time.time() + SETTLE_S / 3)
        found = None if impossible else await self._sought(until)
        if found is None:
            self._close("never sent")
            raise NotSent(f"{self.batches.ref}: a batch was not begun")
        self._begun(found, guessed=True)

    async def _created(self, lines: Sequence[bytes]) -> tuple[str, bool]:
        """Begin the batch, once: where it is not sure that it failed, look for it first. Returns
        its name, and whether that was found in a list."""
        tries, since = 0, time.monotonic()
        while True:
            try:
                async with asyncio.timeout(TRANSFER_S):
                    batch = await self.batches.create(self.sent.mark, self.sent.file, lines)
                    return batch, False
            except (TimeoutError, TransientModelError) as raised:
                error = _said(raised, self.batches.ref)
            except FatalModelError as refused:
                if not isinstance(refused, BadBody):  # after that one it may have begun
                    self._close("refused")
                raise
            tries += 1
            if not error.rate_limited and not isinstance(error, Unreachable):
                found = await self._sought(time.time() + SETTLE_S)
                if found is not None:
                    return found, True
            await self._again(error, tries, since)

    async def _sought(self, until: float) -> str | None:
        """Return the batch of our mark, where the provider lists one by then."""
        sent, others = self.sent, self.desk.known | self.sent.others
        while True:
            names = await self._patiently(
                lambda: self.batches.find(sent.mark, sent.file, sent.begun, len(sent.calls))
            )
            if ours := [name for name in names if name not in others]:
                return ours[0]
            if time.time() >= until:
                return None
            await asyncio.sleep(min(LISTED, max(0.0, until - time.time())))

    def _begun(self, batch: str, guessed: bool = False) -> None:
        self.desk.known.add(batch)
        self._note(batch=batch, guessed=guessed)

    async def _ended(self) -> BatchState:
        """Look at the batch now and then, until it has ended."""
        batch, wait_s = self.sent.batch or "", self.desk.wait_s
        while True:
            self.state = state = await self._patiently(lambda: self.batches.look(batch))
            self.look()
            if state.ended:
                return state
            age = time.time() - self.sent.begun
            wait = min(max(SOONEST_S, age / 5), LATEST_S)
            if wait_s is not None and not self.cut:
                if age >= wait_s:
                    await self._cancel(batch)
                wait = min(wait, max(0.0, wait_s - age))
            await asyncio.sleep(wait)

    async def _cancel(self, batch: str) -> None:
        """End a batch that takes too long; one that has just ended cannot be."""
        self.cut = True
        with suppress(FatalModelError):
            await self._patiently(lambda: self.batches.cancel(batch))

    # ------------------------------------------------------------------ from the provider

    async def _collected(self, state: BatchState) -> bool:
        """Take all results; return whether they are this batch's at all."""

        async def read() -> None:
            most = min(max(LEAST_BYTES, CALL_BYTES * len(self.sent.calls)), MOST_BYTES)
            self._errors.clear()
            self._counts = dict.fromkeys(self._counts, 0)
            seen = set[int]()
            try:
                async for item in self.batches.results(self.sent.batch or "", state, most):
                    self._take(item, seen)
            except BadBody as error:
                self._counts["cut short"] = 1
                self.desk.status.note = str(error)
            self._met = bool(seen)

        await self._patiently(read, TRANSFER_S)
        return self._met or not self.sent.guessed or not self._counts["foreign"]

    def _take(self, item: tuple[str, Outcome] | None, seen: set[int]) -> None:
        """Take one line of results."""
        number = None if item is None else self.sent.number(item[0])
        if item is None or number is None:
            self._counts["unreadable" if item is None else "foreign"] += 1
            return
        if number in seen:
            self._counts["repeated"] += 1
            return
        seen.add(number)
        if number in self.answered:
            return  # by this or an earlier process, before it was stopped
        if isinstance(item[1], Completion):
            self._answer(number, item[1])
        else:
            self._lose(number, item[1])

    def _answer(self, number: int, completion: Completion) -> None:
        """Keep a reply: in the journal, and for whoever waits for it."""
        call, desk = self.sent.calls[number], self.desk
        told, received = said(completion)
        booked, told = book(told, call.size, self.rates, received)
        completion = replace(believed(completion, told), left_out=call.left_out)
        desk.journal.append(call.key, call.hash, completion, self.sent.name(number), booked)
        desk.budget.book(booked)
        desk.status.calls += 1
        desk.status.spend(told, booked.usd)
        self.answered.add(number)
        if (waiting := self.waiting.pop(number, None)) is not None:
            self.tell(waiting, completion)
        else:
            self.early[number] = completion

    def _lose(self, number: int, error: ModelError) -> None:
        """Remember why a call has no reply; one that was answered in vain is billed."""
        self._errors[number] = error
        if error.usage is not None and number not in self._billed:
            self._billed.add(number)
            booked, told = book(error.usage, self.sent.calls[number].size, self.rates)
            self._lost[0] += booked.tokens
            self._lost[1] += booked.usd or 0.0
            self.desk.budget.book(booked, lost=True)
            self.desk.status.spend(told, booked.usd)

    def _end(self, status: str) -> None:
        """Write down how it ended, then tell those who got no reply."""
        self._close(status)
        for number, waiting in tuple(self.waiting.items()):
            error = self._errors.get(number) or TransientModelError(
                f"{self.batches.ref}: no result in the batch ({status})"
            )
            self.tell(waiting, error)
        self.waiting.clear()

    def _close(self, status: str) -> None:
        counts = {
            "answered": len(self.answered),
            "failed": len(self._errors),
            "missing": self.left - len(self._errors),
            **self._counts,
        }
        lost = {"tokens": int(self._lost[0]), "usd": self._lost[1]}
        self._note(ended=status, counts=counts, lost=lost)
        if self.sent.batch is not None:
            self.desk.counts.update(calls=len(self.sent.calls), **counts)

    # ------------------------------------------------------------------ both

    def _note(self, **what: object) -> None:
        self.desk.journal.submitted.note(self.sent, **what)

    async def _patiently(self, ask: Callable[[], Awaitable[T]], limit: float | None = None) -> T:
        """Return what a request gives, made again for as long as that may help."""
        tries, since = 0, time.monotonic()
        while True:
            try:
                async with asyncio.timeout(limit or self.desk.retry.timeout_s):
                    return await ask()
            except (TimeoutError, TransientModelError) as raised:
                error = _said(raised, self.batches.ref)
            tries += 1
            await self._again(error, tries, since)

    async def _again(self, error: TransientModelError, tries: int, since: float) -> None:
        """Wait before another try, or give up: the batch goes on without us."""
        retry = self.desk.retry
        lost = isinstance(error, Unreachable) and tries >= 3 and self.state is None
        if lost or time.monotonic() - since > retry.patience_s:
            raise FatalModelError(f"{error}; batches that were sent go on: resume later") from None
        self.desk.status.retries += 1
        await asyncio.sleep(retry.backoff(error, tries))


def _said(error: Exception, ref: str) -> TransientModelError:
    return error if isinstance(error, TransientModelError) else BrokenReply(f"{ref}: no answer")
