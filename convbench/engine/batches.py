"""Send calls in providers' batches, a wave at a time, and lose none of them.

A wave holds the next turn of all conversations: it is sent when every running job waits for one.
`batches.jsonl` has a line before a batch is sent, one with the provider's name for it, one when it
ended, so that a process that was killed at any moment sends nothing twice:

    {"mark": "c0ffee-0", "wave": 2, "model": "openai/gpt-4o", "calls": {"c0ffee-0": ["3f…", …]}, …}
    {"mark": "c0ffee-0", "batch": "batch_67…"}
    {"mark": "c0ffee-0", "ended": "completed", "counts": {"answered": 1, "failed": 0}}

What each call may cost is held in the journal until its reply, or why there is none, is there too.
A resumed run collects first: it waits for what is at the provider, and only then begins its jobs.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from convbench.engine.budget import Estimate, call_estimate
from convbench.engine.caller import Call, Caller
from convbench.engine.jobs import CURRENT, Gate, or_stop
from convbench.errors import BrokenReply, FatalModelError, TransientModelError, Unreachable
from convbench.models.model import Model
from convbench.schema import Completion, Sampling
from convbench.store.jsonl import Appender, numbered_lines, parse_line

if TYPE_CHECKING:
    from convbench.models.batches import Batches

SOONEST_S, LATEST_S = 0.2, 60.0
"""Bounds of the seconds between two polls of a batch, which are a fifth of its age."""
LISTED_S = 5.0
"""Seconds until a provider's list shows a new batch."""
ANSWER_S = 1800.0
"""Longest time in seconds to send requests, or to receive results."""
FULL = re.compile(r"token_limit|enqueued token", re.IGNORECASE)
"""A refusal because too many tokens are queued (OpenAI)."""

T = TypeVar("T")


@dataclass
class SentBatch:
    """One batch as the file records it; `mark` is our name for it, that of its first request."""

    mark: str
    wave: int
    model: str
    calls: dict[str, tuple[str, str, tuple[str, ...]]]
    """Request's name, which its attempt in the journal has too → journal key, hash and parameters
    that were not sent, of each call."""
    begun: float
    """Seconds since the epoch of its first line."""
    batch: Annotated[str | None, Field(pattern=r"^\w[\w.-]{0,127}$")] = None
    """The provider's name for it, which becomes part of an address; None if it is not known."""
    ended: str | None = None
    """How it ended, in the provider's word or ours."""
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of its calls, `answered` and `failed`."""
    batches: Any = None
    left: dict[str, Any] = field(default_factory=dict)
    """While it is at work: the model's batches, and its requests without an outcome, by name."""

    @property
    def state(self) -> str:
        """Return its last recorded step: how it ended, else `sent` or `about to be sent`."""
        return self.ended or ("sent" if self.batch else "about to be sent")


_SENT = TypeAdapter(SentBatch)


class BatchLog(Appender):
    """Reads and writes `batches.jsonl` of a run's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "batches.jsonl")

    def read_batches(self) -> list[SentBatch]:
        """Return all batches in their order, with their latest state; invalid ones are skipped."""
        records = defaultdict[str, dict[str, Any]](dict)
        for _, line in numbered_lines(self.path):
            record = parse_line(line)
            records[str(record.get("mark"))] |= record
        batches = []
        for record in records.values():
            with suppress(ValidationError):
                batches.append(_SENT.validate_python({**record, "batches": None, "left": {}}))
        return batches

    def note(self, sent: SentBatch, *names: str, **changed: Any) -> None:
        """Apply changes to a batch and append a line with them and its fields of these names."""
        for name, value in changed.items():
            setattr(sent, name, value)
        fields = ("mark", *names, *changed)
        self.write(orjson.dumps({name: getattr(sent, name) for name in fields}))


def open_batches(folder: Path) -> list[SentBatch]:
    """Return the batches in a run's folder that have not ended; empty without a file of batches."""
    return [sent for sent in BatchLog(folder).read_batches() if sent.ended is None]


class _NotSent(Exception):
    """A call goes with the next wave, through no fault of its own."""


@dataclass(eq=False)
class _Request:
    """A call that waits for its reply; `done` is None if an earlier process sent it."""

    call: Call
    done: asyncio.Future[Completion] | None = None
    line: bytes = b""
    unsent: tuple[str, ...] = ()

    def end(self, outcome: Completion | Exception) -> None:
        if self.done is not None and not self.done.done():
            if isinstance(outcome, Exception):
                self.done.set_exception(outcome)
            else:
                self.done.set_result(outcome)


class BatchQueue:
    """The batches of one command's calls, of these models, which have batches. Without `sends` it
    only collects those of earlier processes."""

    def __init__(self, caller: Caller, models: Iterable[Model], *, sends: bool) -> None:
        assert caller.journal is not None
        self._caller, self._journal, self._sends = caller, caller.journal, sends
        self._log = BatchLog(caller.journal.path.parent)
        self._models = {model.ref: model for model in models}
        self._most: dict[str, int] = {}
        """Most requests of a batch of a model, once the provider's queue was full."""
        self._waiting: defaultdict[Batches, list[_Request]] = defaultdict(list)
        self._gate: Gate | None = None
        self._sending: asyncio.Task[None] | None = None
        self._wave = 0

    async def ask(self, call: Call) -> Completion | None:
        """Return the reply of a call made in a batch, which is then in the journal; None if it must
        be made individually: no batches are sent, its model has none, or it is outside of a job."""
        gate, batches, task = CURRENT.get(), call.model.batches, asyncio.current_task()
        if not self._sends or batches is None or gate is None or task not in gate.tasks:
            return None
        need = call_estimate(call.messages, call.sampling, call.model.headroom, batches.price)
        call = replace(call, need=need, priced=batches)
        self._gate, gate.on_end = gate, self._send_ready
        while True:
            done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
            request = _Request(call, done)
            self._waiting[batches].append(request)
            self._send_ready()
            try:
                return await or_stop(done)
            except _NotSent:
                continue
            finally:
                if request in self._waiting[batches]:
                    self._waiting[batches].remove(request)

    async def aclose(self) -> None:
        """Stop polling; the provider goes on with its batches."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        self._log.close()

    def _send_ready(self) -> None:
        """Send the calls that wait, if no further one can join them: all running jobs wait."""
        gate, waves = self._gate, self._waiting
        if gate is None or gate.stopping.done() or self._sending is not None:
            return
        if 0 < sum(map(len, waves.values())) >= len(gate.tasks):
            self._waiting = defaultdict(list)
            self._wave += 1
            self._sending = asyncio.ensure_future(self._send_wave(waves))

    async def _send_wave(self, waves: dict[Batches, list[_Request]]) -> None:
        await asyncio.gather(*(self._send_requests(*wave) for wave in waves.items()))
        self._sending, self._caller.status.note = None, ""
        self._send_ready()

    async def _send_requests(self, batches: Batches, requests: list[_Request]) -> None:
        """Send one model's requests of a wave, in as many batches as their limits ask for."""
        mark, ready = secrets.token_hex(8), list[tuple[str, _Request]]()
        for number, request in enumerate(requests):
            name, call = f"{mark}-{number}", request.call
            try:
                line = batches.request_line(name, call.messages, call.sampling)
                if not self._caller.budget.try_hold(call.need):
                    raise _NotSent
            except Exception as error:  # noqa: BLE001 - the boundary of this one job
                request.end(error)
                continue
            request.line, request.unsent = line
            ready.append((name, request))
        longest = max((len(request.line) + 1 for _, request in ready), default=1)
        most = self._most.get(batches.ref, batches.most_requests)
        most = max(1, min(most, batches.most_bytes // longest))
        parts = [dict(ready[at : at + most]) for at in range(0, len(ready), most)]
        if batches.ref in self._most:  # its queue was full: one after the other
            for part in parts:
                await self._run_batch(batches, part)
        else:
            running = [self._run_batch(batches, part) for part in parts]
            await asyncio.gather(*running or [asyncio.sleep(SOONEST_S)])

    async def _run_batch(self, batches: Batches, left: dict[str, _Request]) -> None:
        """Send one batch and wait for its end; then all its requests have ended."""
        calls = {name: (one.call.key, one.call.hash, one.unsent) for name, one in left.items()}
        mark, now = next(iter(left)), time.time()
        sent = SentBatch(mark, self._wave, batches.ref, calls, now, batches=batches, left=left)
        try:
            self._log.note(sent, "wave", "model", "begun", "calls")
            for name, request in left.items():
                self._journal.hold(request.call.key, request.call.need, name)
            await self._create(sent)
            await self._finish(sent)
        except Exception as error:  # noqa: BLE001 - it belongs to the jobs that wait
            for request in left.values():
                self._caller.budget.settle(request.call.need, None, batches.price)
                request.end(error)

    async def collect_open(self) -> None:
        """Wait for the batches that earlier processes sent to the models of this command; their
        replies are in the journal then."""
        batches = self._log.read_batches()
        self._wave = max((sent.wave for sent in batches), default=0)
        ours = [sent for sent in batches if sent.ended is None and sent.model in self._models]
        held = self._journal.read_costs()[1] if ours else {}
        await asyncio.gather(*(self._collect(sent, held) for sent in ours))
        self._caller.status.note = ""

    async def _collect(self, sent: SentBatch, held: dict[str, Estimate]) -> None:
        model = self._models[sent.model]
        await self._caller.ensure_started(model)
        sent.batches = model.batches
        for name, (key, hash, unsent) in sent.calls.items():
            if (need := held.get(name)) is not None:
                self._caller.budget.take_up(need)
                call = Call(model, (), Sampling(), key, hash, need, model.batches)
                sent.left[name] = _Request(call, unsent=unsent)
        await self._finish(sent)

    async def _create(self, sent: SentBatch) -> None:
        """Create a batch exactly once: before another try it is looked for in the provider's list,
        unless it certainly was not created."""
        lines, may_exist = [request.line for request in sent.left.values()], False

        async def create() -> str:
            nonlocal may_exist
            if may_exist and (found := await self._find(sent)):
                return found
            may_exist = True
            try:
                return str(await sent.batches.create(sent.mark, lines))
            except FatalModelError as error:
                self._end(sent, "refused", error, {})
                raise
            except TransientModelError as error:
                may_exist = not (error.rate_limited or isinstance(error, Unreachable))
                raise

        self._log.note(sent, batch=await self._retry(sent, create))

    async def _find(self, sent: SentBatch) -> str | None:
        await asyncio.sleep(LISTED_S)
        known = {earlier.batch for earlier in self._log.read_batches()}
        name: str | None = await sent.batches.find(sent.mark, sent.begun, len(sent.calls), known)
        return name

    async def _finish(self, sent: SentBatch) -> None:
        """Wait for a batch's end, settle all its requests that are left, and record the end. What
        was not created, or found no room in the provider's queue, goes with the next wave."""
        if sent.batch is None:
            found = await self._retry(sent, partial(self._find, sent))
            if found is None:
                self._end(sent, "never sent", _NotSent("it was not created"), {})
                return
            self._log.note(sent, batch=found)
        name, batches = str(sent.batch), sent.batches
        while not (state := await self._retry(sent, partial(batches.state, name))).ended:
            done = f"{state.done:,} of {len(sent.calls):,} calls done"
            self._caller.status.note = f"wave {sent.wave}: {done}"
            await asyncio.sleep(min(max(SOONEST_S, (time.time() - sent.begun) / 5), LATEST_S))

        async def read() -> dict[str, Any]:
            return {name: outcome async for name, outcome in batches.results(name, state)}

        outcomes = await self._retry(sent, read)
        why: Exception = TransientModelError(f"{sent.model}: no result in the batch")
        if state.refused is not None:
            text, one = f"{sent.model}: batch refused: {state.refused}", len(sent.calls) == 1
            why = FatalModelError(text)
            if FULL.search(text):
                why = TransientModelError(text) if one else _NotSent(text)
                self._most[sent.model] = len(sent.calls) // 2 or 1
                await asyncio.sleep(self._caller.retry.longest_s)
        self._end(sent, state.status, why, outcomes)

    def _end(self, sent: SentBatch, how: str, why: Exception, outcomes: Mapping[str, Any]) -> None:
        """Settle the requests that are left, by `why` if they have no outcome; record the end."""
        failed = 0
        for name, request in sent.left.items():
            outcome = outcomes.get(name, why)
            if isinstance(outcome, Completion):
                outcome = replace(outcome, left_out=request.unsent)
            failed += not isinstance(outcome, Completion)
            self._caller.settle(request.call, outcome, name)
            request.end(outcome)
        sent.left.clear()
        counts = {"answered": len(sent.calls) - failed, "failed": failed}
        self._log.note(sent, ended=how, counts=counts)

    async def _retry(self, sent: SentBatch, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request, retried while that may help. Raises FatalModelError to
        give up; what is at the provider continues."""
        tries, since, retry = 0, time.monotonic(), self._caller.retry
        while True:
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await ask()
            except TransientModelError as raised:
                error = raised
            except TimeoutError:
                error = BrokenReply(f"{sent.model}: no answer")
            tries += 1
            nobody = isinstance(error, Unreachable) and tries >= 3 and sent.batch is None
            if nobody or time.monotonic() - since > retry.patience_s:
                raise FatalModelError(f"{error}; submitted batches continue; resume later")
            await asyncio.sleep(retry.backoff_seconds(error, tries))
