"""Calls wait for each other and go in batches, all conversations at one turn together."""

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
"""How many tokens may wait, in the words of a provider that has no room for more."""


@dataclass
class Part:
    """A batch while it is put together."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: list[Waiting] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes."""
    tokens: float = 0.0
    usd: float | None = 0.0

    def add(self, waiting: Waiting, line: bytes, need: Estimate) -> None:
        """Take a call with its request and its worst case."""
        self.calls.append(waiting)
        self.lines.append(line)
        self.size += len(line) + 1
        self.tokens += need.tokens
        self.usd = None if self.usd is None or need.usd is None else self.usd + need.usd


@dataclass
class Lane:
    """The waves of one model."""

    model: Model
    batches: Batches
    rates: Rates
    waiting: dict[Waiting, None] = field(default_factory=dict)
    """Those that the next wave takes, in the order they came."""
    most_queued: float | None = None
    """Tokens of prompts that may wait at the provider, once it said that there were too many."""

    def line(self, part: Part, waiting: Waiting) -> bytes:
        """Return the request of the part's next call."""
        name = f"{part.mark}-{len(part.calls)}"
        return self.batches.line(name, waiting.messages, waiting.sampling)

    def beyond(self, part: Part, line: bytes) -> bool:
        """Whether a part has no room for a request."""
        limit = self.batches
        return bool(part.calls) and (
            len(part.calls) >= limit.most_requests or part.size + len(line) + 2 > limit.most_bytes
        )

    def sent(self, part: Part) -> list[SentCall]:
        """Return a part's calls as they are written down."""
        missing = self.batches.missing
        return [SentCall(c.key, c.hash, c.size, missing(c.sampling)) for c in part.calls]

    def crowded(self, flight: Flight, why: str) -> bool:
        """Learn from a batch that was refused because too many tokens wait how many may; return
        whether only waiting helps."""
        size = queued([call.size.text for call in flight.sent.calls])
        found = LIMIT.search(why)
        said = float(found[1].replace(",", "")) if found else 0.0
        self.most_queued = said if 0 < said < size else max(1.0, size / 2)
        return said >= size or len(flight.sent.calls) == 1

    def passed(self) -> None:
        """Take note that a batch was taken: the next may be larger."""
        if self.most_queued is not None:
            self.most_queued *= 2


def queued(texts: Sequence[int]) -> float:
    """Return about how many tokens so many bytes of prompts are."""
    return sum(texts) / USUAL_TOKEN


class _Late(Exception):
    """A call that has waited long enough for its batch."""


class Waves:
    """The waves of one command. `started` starts a model, `answered` is told that it works,
    `exhausted` gives the error of a call that failed too often."""

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
        """Of the last wave that was sent."""
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
        """Take up the batches that earlier processes sent for these journal keys and that have no
        end yet; each flies on when one of its calls is asked for."""
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
        """Return the reply of a call that goes in a batch, journalled; None where it is to be made
        as an ordinary one: its model has no batches, or it has waited too long.

        Raises as `Caller.complete` does.
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
        """Whether a call waits for a batch: one that is in a batch does, however long it took."""
        name = waiting.key, waiting.hash
        if name in self._open or name in self._claims or name in self._early:
            return True
        return not self.desk.collect_only and not self._late(waiting)

    def told(self) -> str:
        """Return what became of the batches of this command in one line; empty where none
        ended."""
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
        """Look no longer after what is on its way; the provider goes on with it."""
        flying = list(self._flying.values())
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)

    # ------------------------------------------------------------------ who waits

    async def _reply(self, waiting: Waiting, task: asyncio.Task[object]) -> Completion:
        """Join a wave, or the batch that this call is in already, and wait."""
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
        """End the wait of a call. It runs from now on, as far as waves are concerned."""
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
        """Let a call go that no wave has taken in time."""
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
        """Return the flight that this call is in; one that an earlier process sent is taken up."""
        name = waiting.key, waiting.hash
        if name in self._open:
            sent, _ = self._open[name]
            self._take_up(sent, self._lane(waiting))
        return self._claims.get(name)

    def _take_up(self, sent: SentBatch, lane: Lane) -> None:
        answered = self._answered[sent.mark]
        budget = self.desk.budget
        if budget.limited:  # what was counted as spent is now held
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
        """Look whether waves close, once all that happens now has happened."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Send every wave that nothing more can join."""
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
        """Send what waits in a lane, as far as budget and limits let it; the rest waits on."""
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
        """Launch the batches of a wave; return the calls that must wait."""
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
        """Hold the worst case of a call; None where it must wait. Raises BudgetError where no
        waiting helps."""
        budget, need = self.desk.budget, lane.rates.bound(waiting.size)
        if budget.hold_sent(need):
            return need
        if part.calls or self._flying:
            return None
        likely = lane.rates.likely(waiting.size)
        return likely if budget.hold_sent(likely, alone=True) else None

    def _depart(self, lane: Lane, part: Part) -> None:
        """Write down a batch and send it."""
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

    # ------------------------------------------------------------------ what is on its way

    def _flight(self, sent: SentBatch, lane: Lane) -> Flight:
        return Flight(self.desk, sent, lane.batches, lane.rates, self._tell, self._show)

    def _launch(self, flight: Flight, lane: Lane, lines: Sequence[bytes] | None) -> None:
        self._flying[flight] = asyncio.ensure_future(self._fly(flight, lane, lines))
        self._show()

    async def _fly(self, flight: Flight, lane: Lane, lines: Sequence[bytes] | None) -> None:
        """See a flight to its end; whatever goes wrong is told to those who wait."""
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
        """Learn how many tokens may wait at the provider, and give it a while."""
        beside = any(one is not flight and one.batches is lane.batches for one in self._flying)
        if flight.state is None or not flight.state.full or beside:
            return  # with others of ours beside it their end makes room
        if lane.crowded(flight, why):
            await asyncio.sleep(self.desk.retry.longest_s)

    def _forget(self, flight: Flight) -> None:
        """Let its calls be sent in another batch; keep the replies that nobody asked for yet."""
        for number, call in enumerate(flight.sent.calls):
            name = call.key, call.hash
            if self._claims.get(name, (None, 0))[0] is flight:
                del self._claims[name]
            if number in flight.early:
                self._early[name] = flight.early.pop(number)

    def _show(self) -> None:
        """Say what is waited for."""
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
