"""Collect calls and send them in batches: one wave holds the next turn of all conversations."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from convbench.engine.batch_job import BatchContext, BatchJob, BatchNotSent, PendingCall
from convbench.engine.batch_record import SentBatch, SentCall, unreplied_cost
from convbench.engine.budget import USUAL_TOKEN, Estimate, Rates, size_of
from convbench.engine.jobs import CURRENT, Gate, check_gate, idle_wait
from convbench.errors import TransientModelError
from convbench.models.batch import Batches
from convbench.models.model import Model
from convbench.schema import Completion, Message, Sampling

LIMIT = re.compile(r"limit[^\d]{0,20}(\d[\d,]{2,14})", re.IGNORECASE)
"""Finds the limit on queued tokens in a provider's refusal."""


@dataclass
class BatchDraft:
    """A batch that is being assembled."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: list[PendingCall] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes."""
    tokens: float = 0.0
    usd: float | None = 0.0

    def add_call(self, pending: PendingCall, line: bytes, need: Estimate) -> None:
        """Add a call with its request line and worst-case cost.

        `usd` becomes None for good once a cost in dollars is unknown.
        """
        self.calls.append(pending)
        self.lines.append(line)
        self.size += len(line) + 1
        self.tokens += need.tokens
        self.usd = None if self.usd is None or need.usd is None else self.usd + need.usd


@dataclass
class ModelQueue:
    """The calls of one model that wait for a batch."""

    model: Model
    batches: Batches
    rates: Rates
    waiting: dict[PendingCall, None] = field(default_factory=dict)
    """Calls of the next wave, in the order of their arrival."""
    most_queued: float | None = None
    """Most prompt tokens that may be queued at the provider; None until it refused a batch."""

    def request_line(self, draft: BatchDraft, pending: PendingCall) -> bytes:
        """Return the request line of a call as the next one of the batch; the batch is not changed.

        Raise ModelError if it cannot be built.
        """
        name = f"{draft.mark}-{len(draft.calls)}"
        return self.batches.request_line(name, pending.messages, pending.sampling)

    def exceeds_limits(self, draft: BatchDraft, line: bytes) -> bool:
        """Return True if the batch with this request would have too many requests or bytes.

        It is False for a batch without calls: one request always fits.
        """
        limit = self.batches
        return bool(draft.calls) and (
            len(draft.calls) >= limit.most_requests or draft.size + len(line) + 2 > limit.most_bytes
        )

    def sent_calls(self, draft: BatchDraft) -> list[SentCall]:
        """Return one record for each of the batch's calls, in the order of its requests."""
        missing = self.batches.unsent_parameters
        return [SentCall(c.key, c.hash, c.size, missing(c.sampling)) for c in draft.calls]

    def learn_limit(self, job: BatchJob, why: str) -> bool:
        """Set the limit on queued tokens from a refusal's text; return True if only waiting helps.

        Without a limit in the text that is below the batch's tokens, half of these is the limit.
        Only waiting helps if the stated limit would hold the batch, or it has a single call.
        """
        size = queued_tokens([call.size.text for call in job.sent.calls])
        match = LIMIT.search(why)
        limit = float(match[1].replace(",", "")) if match else 0.0
        self.most_queued = limit if 0 < limit < size else max(1.0, size / 2)
        return limit >= size or len(job.sent.calls) == 1

    def raise_limit(self) -> None:
        """Double the limit on queued tokens, if there is one; called after a batch was accepted."""
        if self.most_queued is not None:
            self.most_queued *= 2


def queued_tokens(texts: Sequence[int]) -> float:
    """Return the estimated tokens of prompts, given the bytes of each: a third of their sum."""
    return sum(texts) / USUAL_TOKEN


class _LateCall(Exception):
    """A call has waited too long for its batch."""


class BatchQueue:
    """The batches of one command. `started` starts a model, `answered` is called when it has
    answered, `exhausted` returns the error of a call that failed too often."""

    def __init__(
        self,
        context: BatchContext,
        started: Callable[[Model], Awaitable[None]],
        answered: Callable[[Model], None],
        exhausted: Callable[[Model, TransientModelError, int], Exception],
    ) -> None:
        self.context, self._started = context, started
        self._answered_by, self._exhausted = answered, exhausted
        self.number = 0
        """Number of the last wave that was sent."""
        self._queues: dict[str, ModelQueue] = {}
        self._gate: Gate | None = None
        self._pending_tasks: dict[PendingCall, asyncio.Task[object]] = {}
        self._claims: dict[tuple[str, str], tuple[BatchJob, int]] = {}
        self._open: dict[tuple[str, str], tuple[SentBatch, int]] = {}
        self._answered: dict[str, set[int]] = {}
        self._early: dict[tuple[str, str], Completion] = {}
        self._jobs: dict[BatchJob, asyncio.Task[None]] = {}
        self._soon = False

    def load_batches(self, owns: Callable[[str], bool]) -> None:
        """Load the unfinished batches of earlier processes that have a call whose journal key
        `owns` accepts.

        Each is resumed when one of its unanswered calls is requested. The number of the last wave
        and the provider's names of all recorded batches are read too.
        """
        batches = self.context.journal.submitted.read_batches()
        self.number = max((sent.wave for sent in batches), default=0)
        self.context.known.update(sent.batch for sent in batches if sent.batch)
        opened = [
            sent
            for sent in batches
            if sent.ended is None and any(owns(call.key) for call in sent.calls)
        ]
        replied = self.context.journal.attempts_with_reply({sent.mark for sent in opened})
        for sent in opened:
            answered = {n for n in range(len(sent.calls)) if sent.request_name(n) in replied}
            self._answered[sent.mark] = answered
            for number, call in enumerate(sent.calls):
                if number not in answered:
                    self._open[call.key, call.hash] = sent, number

    async def ask_in_batch(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str, hash: str
    ) -> Completion | None:
        """Return the reply of a call made in a batch, which is then in the journal.

        Return None if the call must be made individually: its model has no batches, it is made
        outside a job, no new batch may be sent, or it has waited too long. Raise as
        `Caller.complete` does.
        """
        gate, task, batches = CURRENT.get(), asyncio.current_task(), model.batches
        if batches is None or gate is None or task is None or task not in gate.tasks:
            return None
        size, tries = size_of(model, messages, sampling), 0
        pending = PendingCall(model, batches, messages, sampling, key, hash, size, time.monotonic())
        if not self._waits_for_batch(pending):
            return None
        await self._started(model)
        self._gate, gate.on_end = gate, self._look_soon
        while self._waits_for_batch(pending):
            check_gate()
            try:
                reply = await self._await_reply(pending, task)
                self._answered_by(model)
                return reply
            except _LateCall:
                break
            except BatchNotSent:
                continue
            except TransientModelError as error:
                tries += 1
                if tries >= self.context.retry.tries:
                    raise self._exhausted(model, error, tries) from None
                self.context.status.retries += 1
        return None

    def _waits_for_batch(self, pending: PendingCall) -> bool:
        """Return True if a call waits for a batch; one in a batch waits however long it takes."""
        name = pending.key, pending.hash
        if name in self._open or name in self._claims or name in self._early:
            return True
        return not self.context.collect_only and not self._is_late(pending)

    def summary_line(self) -> str:
        """Return one line on the outcomes of the batches that ended in this command; empty if none
        did."""
        counts = self.context.counts
        if not counts["calls"]:
            return ""
        parts = [f"batches: {counts['answered']:,} of {counts['calls']:,} calls answered"]
        again = counts["failed"] + counts["missing"]
        parts += [f"{again:,} without a reply"] if again else []
        for name in ("repeated", "foreign", "unreadable"):
            if counts[name]:
                parts.append(f"{counts[name]:,} {name} line{'' if counts[name] == 1 else 's'}")
        if counts["cut short"]:
            parts.append(f"{counts['cut short']} result file(s) longer than the limit")
        return " · ".join(parts)

    async def aclose(self) -> None:
        """Stop polling the batches in progress; the provider continues with them."""
        flying = list(self._jobs.values())
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)

    # ------------------------------------------------------------------ pending calls

    async def _await_reply(self, pending: PendingCall, task: asyncio.Task[object]) -> Completion:
        """Return the reply of a call, after it joined a wave or the batch that holds it already."""
        pending.done = asyncio.get_running_loop().create_future()
        claim = self._find_claim(pending)
        if claim is not None and claim[1] in claim[0].early:
            return claim[0].early.pop(claim[1])
        if (early := self._early.pop((pending.key, pending.hash), None)) is not None:
            return early
        queue = self._queue_of(pending)
        if claim is not None:
            claim[0].waiting[claim[1]] = pending
        else:
            queue.waiting[pending] = None
        self._pending_tasks[pending] = task
        self._look_soon()
        timer = self._start_timer(pending, queue) if claim is None else None
        try:
            with idle_wait():
                return await pending.done
        finally:
            if timer is not None:
                timer.cancel()
            self._pending_tasks.pop(pending, None)
            queue.waiting.pop(pending, None)
            if claim is not None and claim[0].waiting.get(claim[1]) is pending:
                del claim[0].waiting[claim[1]]

    def _end_wait(self, pending: PendingCall, result: Completion | Exception) -> None:
        """End the wait of a call with a reply or an error; its job counts as running again."""
        self._pending_tasks.pop(pending, None)
        if pending.done.done():
            return
        if isinstance(result, Exception):
            pending.done.set_exception(result)
        else:
            pending.done.set_result(result)

    def _is_late(self, pending: PendingCall) -> bool:
        wait_s = self.context.wait_s
        return wait_s is not None and time.monotonic() - pending.since >= wait_s

    def _start_timer(self, pending: PendingCall, queue: ModelQueue) -> asyncio.TimerHandle | None:
        """Return a timer that ends the wait of a call which no wave takes in time; None without a
        limit."""
        if self.context.wait_s is None:
            return None

        def let_go() -> None:
            if pending in queue.waiting:
                del queue.waiting[pending]
                self._end_wait(pending, _LateCall())

        left = self.context.wait_s - (time.monotonic() - pending.since)
        return asyncio.get_running_loop().call_later(max(0.0, left), let_go)

    def _queue_of(self, pending: PendingCall) -> ModelQueue:
        name = f"{pending.model.ref} {pending.model.endpoint}"
        if name not in self._queues:
            rates = self.context.budget.batch_rates(pending.batches)
            self._queues[name] = ModelQueue(pending.model, pending.batches, rates)
        return self._queues[name]

    def _find_claim(self, pending: PendingCall) -> tuple[BatchJob, int] | None:
        """Return (batch, request number) of a call that is in a batch, resuming it if an earlier
        process sent it; else None."""
        name = pending.key, pending.hash
        if name in self._open:
            sent, _ = self._open[name]
            self._take_up(sent, self._queue_of(pending))
        return self._claims.get(name)

    def _take_up(self, sent: SentBatch, queue: ModelQueue) -> None:
        answered = self._answered[sent.mark]
        budget = self.context.budget
        if budget.has_limit:  # what was counted as spent is now reserved
            tokens, usd = unreplied_cost([sent], {sent.request_name(number) for number in answered})
            budget.add_earlier(-tokens, -usd)
        job = self._new_job(sent, queue)
        job.answered |= answered
        for number, call in enumerate(sent.calls):
            if self._open.pop((call.key, call.hash), None) is not None:
                self._claims[call.key, call.hash] = job, number
        budget.reserve_batch(job.held, sent=True)
        self._start_job(job, queue, None)

    # ------------------------------------------------------------------ when a wave closes

    def _look_soon(self) -> None:
        """Check for waves to send once the loop has run what is due now."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._send_ready)

    def _send_ready(self) -> None:
        """Send every wave that no further call can join, because all running jobs wait."""
        self._soon = False
        self._show_status()
        gate = self._gate
        if gate is None or gate.is_shut or self._jobs:
            return
        if not gate.tasks or len(self._pending_tasks) < len(gate.tasks):
            return
        for queue in self._queues.values():
            if queue.waiting:
                self._send_queue(queue)

    def _send_queue(self, queue: ModelQueue) -> None:
        """Send the waiting calls of a model within budget and limits; the rest keeps waiting."""
        self.number += 1
        going, queue.waiting = list(queue.waiting), {}
        try:
            rest = self._launch_batches(queue, going)
        except Exception as error:  # noqa: BLE001 - it belongs to the jobs that wait
            for pending in going:
                self._end_wait(pending, error)
            return
        queue.waiting = dict.fromkeys(rest) | queue.waiting

    def _launch_batches(self, queue: ModelQueue, going: Sequence[PendingCall]) -> list[PendingCall]:
        """Start the batches of a wave; return the calls that must wait."""
        draft, waits = BatchDraft(), 0.0
        for number, pending in enumerate(going):
            try:
                line = queue.request_line(draft, pending)
                if queue.exceeds_limits(draft, line):
                    self._send_batch(queue, draft)
                    draft = BatchDraft()
                    line = queue.request_line(draft, pending)
            except Exception as error:  # noqa: BLE001 - the boundary of this one job
                self._end_wait(pending, error)
                continue
            waits += queued_tokens([pending.size.text])
            full = queue.most_queued is not None and waits > queue.most_queued and number > 0
            need = None if full else self._reserve_call(queue, draft, pending)
            if need is None:
                self._send_batch(queue, draft)
                return list(going[number:])
            draft.add_call(pending, line, need)
        self._send_batch(queue, draft)
        return []

    def _reserve_call(
        self, queue: ModelQueue, draft: BatchDraft, pending: PendingCall
    ) -> Estimate | None:
        """Return the reserved worst case of a call; None if it must wait. Raises BudgetError if
        waiting cannot help."""
        budget, need = self.context.budget, queue.rates.upper_bound(pending.size)
        if budget.reserve_batch(need):
            return need
        if draft.calls or self._jobs:
            return None
        likely = queue.rates.likely_use(pending.size)
        return likely if budget.reserve_batch(likely, alone=True) else None

    def _send_batch(self, queue: ModelQueue, draft: BatchDraft) -> None:
        """Record a batch and send it, if it has calls."""
        if not draft.calls:
            return
        now = time.time()
        sent = SentBatch(
            draft.mark,
            self.number,
            queue.model.ref,
            queue.sent_calls(draft),
            draft.usd,
            round(draft.tokens),
            now,
            now,
        )
        self.context.journal.submitted.write_intent(sent)
        job = self._new_job(sent, queue)
        job.held = Estimate(draft.tokens, draft.usd)
        for number, pending in enumerate(draft.calls):
            job.waiting[number] = pending
            self._claims[pending.key, pending.hash] = job, number
        self._start_job(job, queue, draft.lines)

    # ------------------------------------------------------------------ batches in progress

    def _new_job(self, sent: SentBatch, queue: ModelQueue) -> BatchJob:
        return BatchJob(
            self.context, sent, queue.batches, queue.rates, self._end_wait, self._show_status
        )

    def _start_job(self, job: BatchJob, queue: ModelQueue, lines: Sequence[bytes] | None) -> None:
        self._jobs[job] = asyncio.ensure_future(self._run_job(job, queue, lines))
        self._show_status()

    async def _run_job(
        self, job: BatchJob, queue: ModelQueue, lines: Sequence[bytes] | None
    ) -> None:
        """Run a batch to its end; an error ends its pending calls."""
        try:
            await job.run_batch(lines)
            queue.raise_limit()
        except BatchNotSent as error:
            await self._make_room(job, queue, str(error))
            self._release_calls(job)
            job.fail_calls(error)
        except Exception as error:  # noqa: BLE001 - it belongs to the jobs that wait for it
            self._release_calls(job)
            job.fail_calls(error)
        finally:
            self._release_calls(job)
            self.context.budget.release_batch(job.held)
            del self._jobs[job]
            self._look_soon()

    async def _make_room(self, job: BatchJob, queue: ModelQueue, why: str) -> None:
        """Learn the limit on queued tokens from a refusal, and wait if only waiting helps."""
        beside = any(other is not job and other.batches is queue.batches for other in self._jobs)
        if job.state is None or not job.state.full or beside:
            return  # the end of our other batches makes room
        if queue.learn_limit(job, why):
            await asyncio.sleep(self.context.retry.longest_s)

    def _release_calls(self, job: BatchJob) -> None:
        """Release a batch's calls, so that another batch may send them; keep unclaimed replies."""
        for number, call in enumerate(job.sent.calls):
            name = call.key, call.hash
            if self._claims.get(name, (None, 0))[0] is job:
                del self._claims[name]
            if number in job.early:
                self._early[name] = job.early.pop(number)

    def _show_status(self) -> None:
        """Set the status line to the progress of the current batches."""
        if not self._jobs:
            self.context.status.note = ""
            return
        flights = list(self._jobs)
        total = sum(len(job.sent.calls) for job in flights)
        done = sum(job.state.done if job.state else 0 for job in flights)
        waves = sorted({job.sent.wave for job in flights})
        names = " and ".join(str(wave) for wave in waves)
        self.context.status.note = (
            f"wave {names}: {done:,} of {total:,} calls done in {len(flights)} "
            f"batch{'' if len(flights) == 1 else 'es'}"
        )
