"""Collect calls and send them in batches: one wave holds the next turn of all conversations."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from convbench.engine.batch_job import Desk, Flight, NotSent, Waiting
from convbench.engine.batch_record import SentBatch, SentCall, totals
from convbench.engine.budget import USUAL_TOKEN, Estimate, Rates, size_of
from convbench.engine.jobs import CURRENT, Gate, enter, idle
from convbench.errors import TransientModelError
from convbench.models.batch import Batches
from convbench.models.model import Model
from convbench.schema import Completion, Message, Sampling

LIMIT = re.compile(r"limit[^\d]{0,20}(\d[\d,]{2,14})", re.IGNORECASE)
"""Finds the limit on queued tokens in a provider's refusal."""


@dataclass
class Part:
    """A batch that is being assembled."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: list[Waiting] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes."""
    tokens: float = 0.0
    usd: float | None = 0.0

    def add(self, waiting: Waiting, line: bytes, need: Estimate) -> None:
        """Add a call with its request and its worst-case cost."""
        self.calls.append(waiting)
        self.lines.append(line)
        self.size += len(line) + 1
        self.tokens += need.tokens
        self.usd = None if self.usd is None or need.usd is None else self.usd + need.usd


@dataclass
class Lane:
    """The calls of one model that wait for a batch."""

    model: Model
    batches: Batches
    rates: Rates
    waiting: dict[Waiting, None] = field(default_factory=dict)
    """Calls of the next wave, in the order of their arrival."""
    most_queued: float | None = None
    """Most prompt tokens that may be queued at the provider; None until it refused a batch."""

    def line(self, part: Part, waiting: Waiting) -> bytes:
        """Return the request line of a call as the next one of the batch."""
        name = f"{part.mark}-{len(part.calls)}"
        return self.batches.line(name, waiting.messages, waiting.sampling)

    def beyond(self, part: Part, line: bytes) -> bool:
        """Return True if a request exceeds the limits of a batch that already has calls."""
        limit = self.batches
        return bool(part.calls) and (
            len(part.calls) >= limit.most_requests or part.size + len(line) + 2 > limit.most_bytes
        )

    def sent(self, part: Part) -> list[SentCall]:
        """Return the batch's calls as they are recorded."""
        missing = self.batches.missing
        return [SentCall(c.key, c.hash, c.size, missing(c.sampling)) for c in part.calls]

    def crowded(self, flight: Flight, why: str) -> bool:
        """Set the limit on queued tokens from a refusal; return True if only waiting helps."""
        size = queued([call.size.text for call in flight.sent.calls])
        found = LIMIT.search(why)
        said = float(found[1].replace(",", "")) if found else 0.0
        self.most_queued = said if 0 < said < size else max(1.0, size / 2)
        return said >= size or len(flight.sent.calls) == 1

    def passed(self) -> None:
        """Double the limit on queued tokens after a batch was accepted."""
        if self.most_queued is not None:
            self.most_queued *= 2


def queued(texts: Sequence[int]) -> float:
    """Return the estimated tokens of prompts, given the bytes of each."""
    return sum(texts) / USUAL_TOKEN


class _Late(Exception):
    """A call has waited too long for its batch."""


class Waves:
    """The batches of one command. `started` starts a model, `answered` is called when it has
    answered, `exhausted` returns the error of a call that failed too often."""

    def __init__(
        self,
        desk: Desk,
        started: Callable[[Model], Awaitable[None]],
        answered: Callable[[Model], None],
        exhausted: Callable[[Model, TransientModelError, int], Exception],
    ) -> None:
        self.desk, self._started = desk, started
        self._answered_by, self._exhausted = answered, exhausted
        self.number = 0
        """Number of the last wave that was sent."""
        self._lanes: dict[str, Lane] = {}
        self._gate: Gate | None = None
        self._parked: dict[Waiting, asyncio.Task[object]] = {}
        self._claims: dict[tuple[str, str], tuple[Flight, int]] = {}
        self._open: dict[tuple[str, str], tuple[SentBatch, int]] = {}
        self._answered: dict[str, set[int]] = {}
        self._early: dict[tuple[str, str], Completion] = {}
        self._flying: dict[Flight, asyncio.Task[None]] = {}
        self._soon = False

    def load(self, wanted: Callable[[str], bool]) -> None:
        """Load the unfinished batches that earlier processes sent for these journal keys; each is
        resumed when one of its calls is requested."""
        batches = self.desk.journal.submitted.read()
        self.number = max((sent.wave for sent in batches), default=0)
        self.desk.known.update(sent.batch for sent in batches if sent.batch)
        opened = [
            sent
            for sent in batches
            if sent.ended is None and any(wanted(call.key) for call in sent.calls)
        ]
        replied = self.desk.journal.replied({sent.mark for sent in opened})
        for sent in opened:
            found = {n for n in range(len(sent.calls)) if sent.name(n) in replied}
            self._answered[sent.mark] = found
            for number, call in enumerate(sent.calls):
                if number not in found:
                    self._open[call.key, call.hash] = sent, number

    async def ask(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str, hash: str
    ) -> Completion | None:
        """Return the journalled reply of a call made in a batch.

        Returns None if the call must be made individually: its model has no batches, or it has
        waited too long. Raises as `Caller.complete` does.
        """
        gate, task, batches = CURRENT.get(), asyncio.current_task(), model.batches
        if batches is None or gate is None or task is None or task not in gate.tasks:
            return None
        size, tries = size_of(model, messages, sampling), 0
        waiting = Waiting(model, batches, messages, sampling, key, hash, size, time.monotonic())
        if not self._goes(waiting):
            return None
        await self._started(model)
        self._gate, gate.on_end = gate, self._look_soon
        while self._goes(waiting):
            enter()
            try:
                reply = await self._reply(waiting, task)
                self._answered_by(model)
                return reply
            except _Late:
                break
            except NotSent:
                continue
            except TransientModelError as error:
                tries += 1
                if tries >= self.desk.retry.tries:
                    raise self._exhausted(model, error, tries) from None
                self.desk.status.retries += 1
        return None

    def _goes(self, waiting: Waiting) -> bool:
        """Return True if a call waits for a batch; one in a batch waits however long it takes."""
        name = waiting.key, waiting.hash
        if name in self._open or name in self._claims or name in self._early:
            return True
        return not self.desk.collect_only and not self._late(waiting)

    def told(self) -> str:
        """Return one line on the outcomes of this command's batches; empty if none ended."""
        counts = self.desk.counts
        if not counts["calls"]:
            return ""
        parts = [f"batches: {counts['answered']:,} of {counts['calls']:,} calls answered"]
        again = counts["failed"] + counts["missing"]
        parts += [f"{again:,} without a reply"] if again else []
        for name in ("repeated", "foreign", "unreadable"):
            if counts[name]:
                parts.append(f"{counts[name]:,} {name} line{'' if counts[name] == 1 else 's'}")
        if counts["cut short"]:
            parts.append(f"{counts['cut short']} file(s) of results longer than is read")
        return " · ".join(parts)

    async def aclose(self) -> None:
        """Stop polling the batches in progress; the provider continues with them."""
        flying = list(self._flying.values())
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)

    # ------------------------------------------------------------------ pending calls

    async def _reply(self, waiting: Waiting, task: asyncio.Task[object]) -> Completion:
        """Return the reply of a call, after it joined a wave or the batch that holds it already."""
        waiting.done = asyncio.get_running_loop().create_future()
        claim = self._claimed(waiting)
        if claim is not None and claim[1] in claim[0].early:
            return claim[0].early.pop(claim[1])
        if (early := self._early.pop((waiting.key, waiting.hash), None)) is not None:
            return early
        lane = self._lane(waiting)
        if claim is not None:
            claim[0].waiting[claim[1]] = waiting
        else:
            lane.waiting[waiting] = None
        self._parked[waiting] = task
        self._look_soon()
        timer = self._timer(waiting, lane) if claim is None else None
        try:
            with idle():
                return await waiting.done
        finally:
            if timer is not None:
                timer.cancel()
            self._parked.pop(waiting, None)
            lane.waiting.pop(waiting, None)
            if claim is not None and claim[0].waiting.get(claim[1]) is waiting:
                del claim[0].waiting[claim[1]]

    def _tell(self, waiting: Waiting, result: Completion | Exception) -> None:
        """End the wait of a call with a reply or an error; its job counts as running again."""
        self._parked.pop(waiting, None)
        if waiting.done.done():
            return
        if isinstance(result, Exception):
            waiting.done.set_exception(result)
        else:
            waiting.done.set_result(result)

    def _late(self, waiting: Waiting) -> bool:
        wait_s = self.desk.wait_s
        return wait_s is not None and time.monotonic() - waiting.since >= wait_s

    def _timer(self, waiting: Waiting, lane: Lane) -> asyncio.TimerHandle | None:
        """Return a timer that ends the wait of a call which no wave takes in time; None without a
        limit."""
        if self.desk.wait_s is None:
            return None

        def ring() -> None:
            if waiting in lane.waiting:
                del lane.waiting[waiting]
                self._tell(waiting, _Late())

        left = self.desk.wait_s - (time.monotonic() - waiting.since)
        return asyncio.get_running_loop().call_later(max(0.0, left), ring)

    def _lane(self, waiting: Waiting) -> Lane:
        name = f"{waiting.model.ref} {waiting.model.endpoint}"
        if name not in self._lanes:
            rates = self.desk.budget.batch_rates(waiting.batches)
            self._lanes[name] = Lane(waiting.model, waiting.batches, rates)
        return self._lanes[name]

    def _claimed(self, waiting: Waiting) -> tuple[Flight, int] | None:
        """Return (batch, request number) of a call that is in a batch, resuming it if an earlier
        process sent it; else None."""
        name = waiting.key, waiting.hash
        if name in self._open:
            sent, _ = self._open[name]
            self._take_up(sent, self._lane(waiting))
        return self._claims.get(name)

    def _take_up(self, sent: SentBatch, lane: Lane) -> None:
        answered = self._answered[sent.mark]
        budget = self.desk.budget
        if budget.limited:  # what was counted as spent is now reserved
            tokens, usd = totals([sent], {sent.name(number) for number in answered})
            budget.spend(-tokens, -usd)
        flight = self._flight(sent, lane)
        flight.answered |= answered
        for number, call in enumerate(sent.calls):
            if self._open.pop((call.key, call.hash), None) is not None:
                self._claims[call.key, call.hash] = flight, number
        budget.hold_sent(flight.held, sent=True)
        self._launch(flight, lane, None)

    # ------------------------------------------------------------------ when a wave closes

    def _look_soon(self) -> None:
        """Check for waves to send once the loop has run what is due now."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Send every wave that no further call can join, because all running jobs wait."""
        self._soon = False
        self._show()
        gate = self._gate
        if gate is None or gate.shut or self._flying:
            return
        if not gate.tasks or len(self._parked) < len(gate.tasks):
            return
        for lane in self._lanes.values():
            if lane.waiting:
                self._send(lane)

    def _send(self, lane: Lane) -> None:
        """Send the waiting calls of a model within budget and limits; the rest keeps waiting."""
        self.number += 1
        going, lane.waiting = list(lane.waiting), {}
        try:
            rest = self._parts(lane, going)
        except Exception as error:  # noqa: BLE001 - it belongs to the jobs that wait
            for waiting in going:
                self._tell(waiting, error)
            return
        lane.waiting = dict.fromkeys(rest) | lane.waiting

    def _parts(self, lane: Lane, going: Sequence[Waiting]) -> list[Waiting]:
        """Start the batches of a wave; return the calls that must wait."""
        part, waits = Part(), 0.0
        for number, waiting in enumerate(going):
            try:
                line = lane.line(part, waiting)
                if lane.beyond(part, line):
                    self._depart(lane, part)
                    part = Part()
                    line = lane.line(part, waiting)
            except Exception as error:  # noqa: BLE001 - the boundary of this one job
                self._tell(waiting, error)
                continue
            waits += queued([waiting.size.text])
            full = lane.most_queued is not None and waits > lane.most_queued and number > 0
            need = None if full else self._held(lane, part, waiting)
            if need is None:
                self._depart(lane, part)
                return list(going[number:])
            part.add(waiting, line, need)
        self._depart(lane, part)
        return []

    def _held(self, lane: Lane, part: Part, waiting: Waiting) -> Estimate | None:
        """Return the reserved worst case of a call; None if it must wait. Raises BudgetError if
        waiting cannot help."""
        budget, need = self.desk.budget, lane.rates.bound(waiting.size)
        if budget.hold_sent(need):
            return need
        if part.calls or self._flying:
            return None
        likely = lane.rates.likely(waiting.size)
        return likely if budget.hold_sent(likely, alone=True) else None

    def _depart(self, lane: Lane, part: Part) -> None:
        """Record a batch and send it, if it has calls."""
        if not part.calls:
            return
        now = time.time()
        sent = SentBatch(
            part.mark,
            self.number,
            lane.model.ref,
            lane.sent(part),
            part.usd,
            round(part.tokens),
            now,
            now,
        )
        self.desk.journal.submitted.intend(sent)
        flight = self._flight(sent, lane)
        flight.held = Estimate(part.tokens, part.usd)
        for number, waiting in enumerate(part.calls):
            flight.waiting[number] = waiting
            self._claims[waiting.key, waiting.hash] = flight, number
        self._launch(flight, lane, part.lines)

    # ------------------------------------------------------------------ batches in progress

    def _flight(self, sent: SentBatch, lane: Lane) -> Flight:
        return Flight(self.desk, sent, lane.batches, lane.rates, self._tell, self._show)

    def _launch(self, flight: Flight, lane: Lane, lines: Sequence[bytes] | None) -> None:
        self._flying[flight] = asyncio.ensure_future(self._fly(flight, lane, lines))
        self._show()

    async def _fly(self, flight: Flight, lane: Lane, lines: Sequence[bytes] | None) -> None:
        """Run a batch to its end; an error ends its pending calls."""
        try:
            await flight.fly(lines)
            lane.passed()
        except NotSent as error:
            await self._make_room(flight, lane, str(error))
            self._forget(flight)
            flight.fail(error)
        except Exception as error:  # noqa: BLE001 - it belongs to the jobs that wait for it
            self._forget(flight)
            flight.fail(error)
        finally:
            self._forget(flight)
            self.desk.budget.release_sent(flight.held)
            del self._flying[flight]
            self._look_soon()

    async def _make_room(self, flight: Flight, lane: Lane, why: str) -> None:
        """Learn the limit on queued tokens from a refusal, and wait if only waiting helps."""
        beside = any(one is not flight and one.batches is lane.batches for one in self._flying)
        if flight.state is None or not flight.state.full or beside:
            return  # the end of our other batches makes room
        if lane.crowded(flight, why):
            await asyncio.sleep(self.desk.retry.longest_s)

    def _forget(self, flight: Flight) -> None:
        """Release a batch's calls, so that another batch may send them; keep unclaimed replies."""
        for number, call in enumerate(flight.sent.calls):
            name = call.key, call.hash
            if self._claims.get(name, (None, 0))[0] is flight:
                del self._claims[name]
            if number in flight.early:
                self._early[name] = flight.early.pop(number)

    def _show(self) -> None:
        """Set the status line to the progress of the current batches."""
        if not self._flying:
            self.desk.status.note = ""
            return
        flights = list(self._flying)
        total = sum(len(flight.sent.calls) for flight in flights)
        done = sum(flight.state.done if flight.state else 0 for flight in flights)
        waves = sorted({flight.sent.wave for flight in flights})
        names = " and ".join(str(wave) for wave in waves)
        self.desk.status.note = (
            f"wave {names}: {done:,} of {total:,} calls done in {len(flights)} "
            f"batch{'' if len(flights) == 1 else 'es'}"
        )
