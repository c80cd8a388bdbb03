"""Send calls in providers' batches, a wave at a time, and lose none of them.

A wave holds the next turn of all conversations: it is sent when every running job waits for one.
`batches.jsonl` has a line before a batch is sent, one with the provider's name for it, one when it
ended, so that a process that was killed at any moment sends nothing twice:

    {"mark": "c0ffee…", "wave": 2, "model": "openai/gpt-4o", "calls": [["3f…#0@2", "9c01…", []]], …}
    {"mark": "c0ffee…", "batch": "batch_67…"}
    {"mark": "c0ffee…", "ended": "completed", "counts": {"answered": 1, "failed": 0}}

A resumed run collects first: it waits for what is at the provider, and only then begins its jobs.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from convbench.engine.batch_log import FILE, BatchLog, SentBatch, unreplied_cost
from convbench.engine.budget import Estimate, call_estimate, used_of
from convbench.engine.caller import Caller
from convbench.engine.jobs import CURRENT, Gate, check_gate, or_stop, pause
from convbench.errors import BrokenReply, FatalModelError, TransientModelError, Unreachable, Usage
from convbench.models.batches import Batches, BatchState
from convbench.models.model import Model
from convbench.schema import Completion, Message, Sampling

SOONEST_S, LATEST_S = 0.2, 60.0
"""Bounds of the seconds between two polls of a batch, which are a fifth of its age."""
LISTED_S = (0.5, 2.0, 5.0, 0.0)
"""Seconds between looks into a provider's list for a batch whose creation was not confirmed."""
TRANSFER_S = 1800.0
"""Longest time in seconds to send requests, or to receive results."""

T = TypeVar("T")


class _NotSent(Exception):
    """A call goes with the next wave, through no fault of its own."""


class _QueueFull(_NotSent):
    """The provider has too many tokens in its queue."""


@dataclass(eq=False)
class _Waiting:
    """A call that waits for its reply."""

    model: Model
    batches: Batches
    messages: Sequence[Message]
    sampling: Sampling
    key: str
    hash: str
    need: Estimate
    done: asyncio.Future[Completion]

    def end(self, result: Completion | Exception) -> None:
        """End the wait with a reply or an error."""
        if not self.done.done():
            if isinstance(result, Exception):
                self.done.set_exception(result)
            else:
                self.done.set_result(result)


class BatchQueue:
    """The batches of one command's calls, of those `models` that have batches.

    Without `sends` it only collects the batches of earlier processes.
    """

    def __init__(self, caller: Caller, models: Iterable[Model], *, sends: bool) -> None:
        assert caller.journal is not None
        self._caller, self._sends = caller, sends
        self._journal = caller.journal
        self._log = BatchLog(caller.journal.path.with_name(FILE))
        self._models = {m.ref: m for m in models if m.batches is not None}
        self._wave = 0
        self._known: set[str] = set()
        """The provider's names of batches that are ours, or certainly not."""
        self._most: dict[str, int] = {}
        """Most requests of a batch of a model, once the provider's queue was full."""
        self._waiting: list[_Waiting] = []
        self._gate: Gate | None = None
        self._sending: asyncio.Task[None] | None = None
        self._answered = self._asked = 0

    # ------------------------------------------------------------------ calls

    async def ask(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, key: str, hash: str
    ) -> Completion | None:
        """Return the reply of a call made in a batch, which is then in the journal.

        Return None if the call must be made individually: no batches are sent, its model has none,
        or it is made outside of a job. Raise as `Caller.complete` does.
        """
        gate, task = CURRENT.get(), asyncio.current_task()
        batches: Batches | None = model.batches
        if not self._sends or batches is None or gate is None or task not in gate.tasks:
            return None
        await self._caller.ensure_started(model)
        need, tries = call_estimate(model, messages, sampling, batches), 0
        self._gate, gate.on_end = gate, self._look_soon
        while True:
            check_gate()
            done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
            call = _Waiting(model, batches, messages, sampling, key, hash, need, done)
            self._waiting.append(call)
            self._look_soon()
            try:
                reply = await or_stop(done)
                self._caller.note_answered(model)
                return reply
            except _NotSent:
                continue
            except TransientModelError as error:
                tries += 1
                if tries >= self._caller.retry.tries:
                    raise self._caller.exhausted_error(model, error, tries) from None
                self._caller.status.retries += 1
            finally:
                if call in self._waiting:
                    self._waiting.remove(call)

    def summary_line(self) -> str:
        """Return one line on the batches that ended in this command; empty if none did."""
        if not self._asked:
            return ""
        left = self._asked - self._answered
        line = f"batches: {self._answered:,} of {self._asked:,} calls answered"
        return line + (f" · {left:,} without a reply" if left else "")

    async def aclose(self) -> None:
        """Stop polling; the provider goes on with its batches."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        self._log.close()

    # ------------------------------------------------------------------ waves

    def _look_soon(self) -> None:
        """Look whether a wave is to be sent, once the loop has run what is due now."""
        asyncio.get_running_loop().call_soon(self._send_ready)

    def _send_ready(self) -> None:
        """Send the calls that wait, if no further one can join them: all running jobs wait."""
        gate = self._gate
        if gate is None or gate.stopping.is_set() or self._sending is not None:
            return
        if self._waiting and len(self._waiting) >= len(gate.tasks):
            wave, self._waiting = self._waiting, []
            self._wave += 1
            self._sending = asyncio.ensure_future(self._send_wave(wave))

    async def _send_wave(self, wave: list[_Waiting]) -> None:
        groups: dict[tuple[str, str], list[_Waiting]] = {}
        for call in wave:
            groups.setdefault((call.model.ref, call.model.endpoint), []).append(call)
        try:
            await asyncio.gather(*map(self._send_calls, groups.values()))
        except Exception as error:  # noqa: BLE001 - it belongs to the jobs that wait
            for call in wave:
                call.end(error)
        finally:
            self._sending = None
            self._caller.status.note = ""
            self._look_soon()

    async def _send_calls(self, calls: list[_Waiting]) -> None:
        """Send one model's calls of a wave, in as many batches as their limits ask for."""
        batches = calls[0].batches
        most = min(batches.most_requests, self._most.get(batches.ref, batches.most_requests))
        running: list[Awaitable[None]] = []
        left = list(calls)
        while left:
            mark, size = secrets.token_hex(8), 0
            lines: list[bytes] = []
            taken: list[_Waiting] = []
            while left and len(taken) < most:
                call = left[0]
                try:
                    name = f"{mark}-{len(taken)}"
                    line = batches.request_line(name, call.messages, call.sampling)
                    if taken and size + len(line) > batches.most_bytes:
                        break
                    if not self._caller.budget.try_hold(call.need):
                        for later in left:
                            later.end(_NotSent())
                        left = []
                        break
                except Exception as error:  # noqa: BLE001 - the boundary of this one job
                    call.end(error)
                    left.pop(0)
                    continue
                lines.append(line)
                taken.append(left.pop(0))
                size += len(line) + 1
            if taken and batches.ref in self._most:  # its queue was full: one after the other
                await self._run_batch(mark, taken, lines)
            elif taken:
                running.append(self._run_batch(mark, taken, lines))
        await asyncio.gather(*running)

    async def _run_batch(self, mark: str, calls: list[_Waiting], lines: list[bytes]) -> None:
        """Send one batch and wait for its end; then all its calls have ended."""
        batches, unsettled = calls[0].batches, dict(enumerate(calls))

        def take(number: int, outcome: Completion | Exception) -> None:
            if (call := unsettled.pop(number, None)) is None:
                return
            call.end(self._book(sent, number, call, outcome))

        usd = [call.need.usd for call in calls]
        worst = Estimate(
            sum(call.need.tokens for call in calls),
            None if None in usd else sum(one or 0.0 for one in usd),
        )
        sent = SentBatch(
            mark,
            self._wave,
            batches.ref,
            [(call.key, call.hash, batches.unsent(call.sampling)) for call in calls],
            worst,
            time.time(),
        )
        why: Exception = _NotSent()
        try:
            self._log.write_intent(sent)
            await self._create(batches, sent, lines)
            await self._finish(batches, sent, take)
        except _QueueFull as error:
            self._most[batches.ref] = max(1, len(calls) // 2)
            if len(calls) == 1:
                why = TransientModelError(f"{batches.ref}: batch refused: {error}")
            await pause(self._caller.retry.longest_s)
        except _NotSent:
            pass
        except Exception as error:  # noqa: BLE001 - it belongs to the jobs that wait
            why = error
        finally:
            for call in unsettled.values():
                self._caller.budget.settle(call.need, None, batches)
                call.end(why)

    def _book(
        self, sent: SentBatch, number: int, call: _Waiting, outcome: Completion | Exception
    ) -> Completion | Exception:
        """Book the outcome of a call; a reply is journalled."""
        usage: Usage | None = getattr(outcome, "usage", None)
        if isinstance(outcome, Completion):
            outcome = replace(outcome, left_out=sent.calls[number][2])
            usage = Usage(outcome.prompt_tokens, outcome.completion_tokens, outcome.cost_usd)
            self._keep(sent, number, outcome, *used_of(call.need, usage, call.batches))
        lost = not isinstance(outcome, Completion)
        used = self._caller.budget.settle(call.need, usage, call.batches, lost=lost)
        if lost and usage is not None:
            line = " ".join(str(outcome).split())[:200]
            self._journal.append_lost(call.key, line, sent.request_name(number), used)
        if usage is not None:
            self._caller.status.add_usage(usage, used.usd)
        return outcome

    def _keep(
        self, sent: SentBatch, number: int, reply: Completion, used: Estimate, assumed: bool
    ) -> None:
        key, hash, _ = sent.calls[number]
        attempt = sent.request_name(number)
        self._journal.append(key, hash, reply, attempt, used if assumed else None)
        self._caller.status.calls += 1

    # ------------------------------------------------------------------ resume

    async def collect_open(self) -> None:
        """Wait for the batches that earlier processes sent to the models of this command; their
        replies are in the journal then. One that was never created is recorded as such."""
        batches = self._log.read_batches()
        self._wave = max((sent.wave for sent in batches), default=0)
        self._known |= {sent.batch for sent in batches if sent.batch}
        ours = [sent for sent in batches if sent.ended is None and sent.model in self._models]
        replied = self._journal.attempts_with_reply() if ours else set()
        await asyncio.gather(*(self._collect(sent, replied) for sent in ours))
        self._caller.status.note = ""

    async def _collect(self, sent: SentBatch, replied: set[str]) -> None:
        model = self._models[sent.model]
        await self._caller.ensure_started(model)
        batches: Batches = model.batches
        budget = self._caller.budget
        share = Estimate(
            sent.worst.tokens // max(1, len(sent.calls)),
            None if sent.worst.usd is None else sent.worst.usd / max(1, len(sent.calls)),
        )
        counted = unreplied_cost([sent], replied)

        def take(number: int, outcome: Completion | Exception) -> None:
            if sent.request_name(number) in replied or not isinstance(outcome, Completion):
                return
            replied.add(sent.request_name(number))
            outcome = replace(outcome, left_out=sent.calls[number][2])
            usage = Usage(outcome.prompt_tokens, outcome.completion_tokens, outcome.cost_usd)
            used, assumed = used_of(share, usage, batches)
            self._keep(sent, number, outcome, used, assumed)
            budget.book(used, assumed=assumed)
            self._caller.status.add_usage(usage, used.usd)

        with suppress(_NotSent):
            await self._finish(batches, sent, take)
        if budget.has_limit:  # it was counted at its worst
            budget.add_earlier(-counted[0], -counted[1])

    # ------------------------------------------------------------------ one batch

    async def _create(self, batches: Batches, sent: SentBatch, lines: Sequence[bytes]) -> None:
        """Create a batch exactly once: before another try it is looked for in the provider's list,
        unless it certainly was not created."""
        tries, since = 0, time.monotonic()
        while sent.batch is None:
            try:
                async with asyncio.timeout(TRANSFER_S):
                    batch = await batches.create(sent.mark, lines)
            except (TimeoutError, TransientModelError) as raised:
                error = _as_transient(raised, batches.ref)
            except FatalModelError:
                self._log.write_note(sent, ended="refused")
                raise
            else:
                self._name(sent, batch)
                return
            tries += 1
            await self._wait_or_fail(error, tries, since, begun=False)
            if not error.rate_limited and not isinstance(error, Unreachable):
                await self._find(batches, sent)

    async def _find(self, batches: Batches, sent: SentBatch) -> None:
        """Look for a batch in the provider's list, which may show a new one a little later."""
        total = len(sent.calls)
        for wait in LISTED_S:
            found = await self._retry(
                lambda: batches.find(sent.mark, sent.begun, total, self._known), batches.ref
            )
            if found is not None:
                self._name(sent, found)
                return
            await asyncio.sleep(wait)

    def _name(self, sent: SentBatch, batch: str) -> None:
        self._known.add(batch)
        self._log.write_note(sent, batch=batch)

    async def _finish(
        self,
        batches: Batches,
        sent: SentBatch,
        take: Callable[[int, Completion | Exception], None],
    ) -> None:
        """Wait for a batch's end, hand each outcome to `take`, and record the end.

        Raise _NotSent if it was not created or the provider's queue is full, FatalModelError if the
        provider refuses or stays unreachable. Of a batch that turns out to be another's nothing is
        taken, and ours is looked for again.
        """
        while True:
            if sent.batch is None:
                await self._find(batches, sent)
            if sent.batch is None:
                self._log.write_note(sent, ended="never sent")
                raise _NotSent
            state = await self._wait_for_end(batches, sent)
            if state.refused is not None:
                self._log.write_note(sent, ended="failed")
                if state.full:
                    raise _QueueFull(state.refused)
                raise FatalModelError(f"{batches.ref}: batch refused: {state.refused}")
            outcomes = await self._retry(
                partial(_read_results, batches, sent, state), batches.ref, TRANSFER_S
            )
            if outcomes is not None:
                break
            sent.batch = None
        for number in range(len(sent.calls)):
            missing = TransientModelError(f"{batches.ref}: no result in the batch ({state.status})")
            take(number, outcomes.get(number, missing))
        answered = sum(isinstance(outcome, Completion) for outcome in outcomes.values())
        self._asked, self._answered = self._asked + len(sent.calls), self._answered + answered
        counts = {"answered": answered, "failed": len(sent.calls) - answered}
        self._log.write_note(sent, ended=state.status, counts=counts)

    async def _wait_for_end(self, batches: Batches, sent: SentBatch) -> BatchState:
        batch = sent.batch or ""
        while True:
            state = await self._retry(lambda: batches.state(batch), batches.ref)
            total = len(sent.calls)
            self._caller.status.note = f"wave {sent.wave}: {state.done:,} of {total:,} calls done"
            if state.ended:
                return state
            await asyncio.sleep(min(max(SOONEST_S, (time.time() - sent.begun) / 5), LATEST_S))

    async def _retry(
        self, ask: Callable[[], Awaitable[T]], ref: str, limit: float | None = None
    ) -> T:
        """Return the result of a request, retried while that may help."""
        tries, since = 0, time.monotonic()
        while True:
            try:
                async with asyncio.timeout(limit or self._caller.retry.timeout_s):
                    return await ask()
            except (TimeoutError, TransientModelError) as raised:
                error = _as_transient(raised, ref)
            tries += 1
            await self._wait_or_fail(error, tries, since, begun=True)

    async def _wait_or_fail(
        self, error: TransientModelError, tries: int, since: float, *, begun: bool
    ) -> None:
        """Wait before another try. Raises FatalModelError to give up; the batch continues."""
        retry = self._caller.retry
        lost = isinstance(error, Unreachable) and tries >= 3 and not begun
        if lost or time.monotonic() - since > retry.patience_s:
            raise FatalModelError(f"{error}; submitted batches continue; resume later") from None
        self._caller.status.retries += 1
        await asyncio.sleep(retry.backoff_seconds(error, tries))


async def _read_results(
    batches: Batches, sent: SentBatch, state: BatchState
) -> dict[int, Completion | Exception] | None:
    """Return the outcomes of a batch by request number; None if they are those of another batch."""
    outcomes: dict[int, Completion | Exception] = {}
    foreign = False
    async for name, outcome in batches.results(sent.batch or "", state):
        number = sent.number_of(name)
        if number is None:
            foreign = True
        else:
            outcomes.setdefault(number, outcome)
    return None if foreign and not outcomes else outcomes


def _as_transient(error: Exception, ref: str) -> TransientModelError:
    return error if isinstance(error, TransientModelError) else BrokenReply(f"{ref}: no answer")
