"""Show and cancel the batches of a run that a provider still works on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from convbench.engine import run_in_loop
from convbench.engine.batches import BatchLog, SentBatch
from convbench.engine.session import Session
from convbench.errors import ConvbenchError, FatalModelError
from convbench.models.batches import Batches, BatchState, MissingBatch
from convbench.options.shared import CallOptions
from convbench.rollout.calls import open_for
from convbench.store import Run

ASK_S = 30.0
"""Seconds in which the provider must answer about one batch."""


@dataclass
class BatchStatus:
    """One batch and its state at the provider."""

    sent: SentBatch
    state: BatchState | None = None
    problem: str | None = None
    """Why the provider could not be asked; None if it was."""
    age_s: float = 0.0

    @property
    def judge_fingerprint(self) -> str | None:
        """Return the fingerprint of the judge whose calls these are; None for a speaker's or
        without calls."""
        return _judge_of(self.sent)[1]

    @property
    def is_comparison(self) -> bool:
        """Return True if a judge compares two policies with these calls."""
        return _judge_of(self.sent)[0] == "pair"


@dataclass
class BatchesStatus:
    """The batches of a run, in the order in which they were sent."""

    run: Run
    batches: list[BatchStatus] = field(default_factory=list)

    @property
    def open_batches(self) -> list[BatchStatus]:
        """Return the batches that have not ended."""
        return [shown for shown in self.batches if shown.sent.ended is None]


def batches_status(run: Run, calls: CallOptions) -> BatchesStatus:
    """Return a run's batches in the order in which they were sent.

    The provider is asked about those that have not ended; an error becomes the batch's `problem`
    and is not raised.
    """
    batches = _read_batches(run)

    async def ask_all() -> None:
        for shown in batches.open_batches:
            await _ask_provider(run, shown, calls)

    run_in_loop(ask_all)
    return batches


def cancel_batches(run: Run, calls: CallOptions) -> BatchesStatus:
    """Ask the provider to end a run's batches, under the run's lock, and return all its batches.

    The next resume collects what was answered by then. One that the provider no longer knows is
    recorded as gone, at the most it may have cost, and its calls are sent again. Another error
    becomes the batch's `problem`. Raises RunError if another process works on the run.
    """
    batches = _read_batches(run)

    async def end_all() -> None:
        for shown in batches.open_batches:
            await _ask_provider(run, shown, calls, end=True)

    with run.lock():
        run_in_loop(end_all)
    return batches


def _read_batches(run: Run) -> BatchesStatus:
    batches = BatchLog(run.path).read_batches()
    shown = [BatchStatus(sent, age_s=max(0.0, time.time() - sent.begun)) for sent in batches]
    return BatchesStatus(run, shown)


async def _ask_provider(
    run: Run, shown: BatchStatus, calls: CallOptions, *, end: bool = False
) -> None:
    """Ask the provider about one batch, with `end` cancel it. An error becomes its `problem`."""
    try:
        async with _open_batches(run, shown.sent, calls) as batches, asyncio.timeout(ASK_S):
            name = shown.sent.batch
            if name is None:
                shown.problem = "may not have been submitted; the next resume checks"
                return
            shown.state = await batches.state(name)
            if end and not shown.state.ended:
                await batches.cancel(name)
                shown.state = await batches.state(name)
    except MissingBatch as error:
        shown.problem = str(error)
        if end:
            log = BatchLog(run.path)
            log.note(shown.sent, ended="gone")
            log.close()
    except (ConvbenchError, TimeoutError) as error:
        shown.problem = str(error) or f"no answer within {ASK_S:g} s"


@asynccontextmanager
async def _open_batches(run: Run, sent: SentBatch, calls: CallOptions) -> AsyncIterator[Batches]:
    """Open the batch interface of the model of a batch. Raises FatalModelError if it has none."""
    base, short = next(_sent_addresses(run, sent), (None, None))
    address = calls.api_base or base
    model = open_for(run, sent.model, address, calls, Session(), short=short, role="policy")
    try:
        if model.batches is None:
            raise FatalModelError(f"{sent.model}: does not support batches")
        await model.start()
        yield model.batches
    finally:
        await model.aclose()


def _sent_addresses(run: Run, sent: SentBatch) -> Iterator[tuple[str | None, str | None]]:
    """Yield (address, short name) under which a batch may have been sent: the judge's if its calls
    are a judge's, then those of speakers with this model."""
    spec = run.judge_specs().get(_judge_of(sent)[1] or "")
    if spec is not None:
        yield spec.api_base, None
    for member in run.manifest.cast.values():
        if member.model == sent.model:
            yield member.api_base, member.short


def _judge_of(sent: SentBatch) -> tuple[str, str | None]:
    """Return (kind of a batch's calls, fingerprint of their judge or None)."""
    kind, _, rest = next((key for key, _, _ in sent.calls.values()), "").partition("/")
    return kind, rest.partition("/")[0] if kind in ("judge", "pair") else None
