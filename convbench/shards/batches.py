"""The batches of a run that a provider still works on, and how far its shards are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from convbench.engine import run as run_loop
from convbench.engine.batch_record import FILE, SentBatch, Submitted
from convbench.errors import ConvbenchError, FatalModelError
from convbench.models.batch import Batches, BatchState
from convbench.options.shared import CallOptions
from convbench.rollout.calls import open_for
from convbench.store import Run
from convbench.store.shard_attempts import ShardStates, shard_states
from convbench.store.shards import is_sharded

ASK_S = 30.0
"""Longest that the provider may take to tell of one batch."""


@dataclass
class BatchShown:
    """One batch and what its provider says of it now."""

    sent: SentBatch
    state: BatchState | None = None
    problem: str | None = None
    """Why the provider was not heard."""
    age_s: float = 0.0

    @property
    def judge_fingerprint(self) -> str | None:
        """The fingerprint of the judge whose calls these are; None for a speaker's."""
        return _judge_of(self.sent)[1]

    @property
    def is_comparison(self) -> bool:
        """Whether a judge compares two policies by these calls."""
        return _judge_of(self.sent)[0] == "pair"


@dataclass
class BatchesShown:
    """The batches of a run, in the order they were sent."""

    run: Run
    batches: list[BatchShown] = field(default_factory=list)
    shards: ShardStates | None = None
    """How far its shards are; None where it has none, or all are done."""

    @property
    def open(self) -> list[BatchShown]:
        """Those that have no end yet."""
        return [shown for shown in self.batches if shown.sent.ended is None]


def status(run: Run, calls: CallOptions) -> BatchesShown:
    """Return a run's batches; the provider is asked of those that have no end yet."""
    found = _found(run)

    async def go() -> None:
        for shown in found.open:
            await _ask(run, shown, calls)

    run_loop(go)
    return found


def cancel(run: Run, calls: CallOptions, *, forget: bool = False) -> BatchesShown:
    """Ask the providers to end a run's batches, under the run's lock: what is answered by then is
    kept by the next resume. With `forget` nobody is asked. Raises RunError while another process
    works on the run."""
    found = _found(run)

    async def go() -> None:
        for shown in found.open:
            await _ask(run, shown, calls, end=True)

    with run.lock():
        if forget:
            _forget(run, found.open)
        else:
            run_loop(go)
    return found


def _forget(run: Run, batches: list[BatchShown]) -> None:
    """Write an end to batches; all that may have been billed of them counts as lost."""
    file = Submitted(run.path / FILE)
    for shown in batches:
        lost = {"tokens": shown.sent.tokens, "usd": shown.sent.usd or 0.0}
        file.note(shown.sent, ended="forgotten", lost=lost)
    file.close()


def _found(run: Run) -> BatchesShown:
    batches = Submitted(run.path / FILE).read()
    shown = [BatchShown(sent, age_s=max(0.0, time.time() - sent.begun)) for sent in batches]
    states = shard_states(run.path) if is_sharded(run.path) else None
    return BatchesShown(run, shown, None if states and states.done == states.count else states)


async def _ask(run: Run, shown: BatchShown, calls: CallOptions, *, end: bool = False) -> None:
    """Hear of one batch, and end it if so wished; what stands in the way is told with it."""
    try:
        async with _opened(run, shown.sent, calls) as batches, asyncio.timeout(ASK_S):
            name = shown.sent.batch
            if name is None:
                shown.problem = "not known to have begun; the next resume looks for it"
                return
            shown.state = await batches.look(name)
            if end and not shown.state.ended:
                await batches.cancel(name)
                shown.state = await batches.look(name)
    except (ConvbenchError, TimeoutError) as error:
        shown.problem = str(error) or f"no answer within {ASK_S:g} s"


@asynccontextmanager
async def _opened(run: Run, sent: SentBatch, calls: CallOptions) -> AsyncIterator[Batches]:
    """Open what has a batch of this run."""
    base, short = next(_where(run, sent), (None, None))
    model = open_for(run, sent.model, calls.api_base or base, calls, short=short, role="policy")
    try:
        if model.batches is None:
            raise FatalModelError(f"{sent.model}: has no batches")
        await model.start()
        yield model.batches
    finally:
        await model.aclose()


def _where(run: Run, sent: SentBatch) -> Iterator[tuple[str | None, str | None]]:
    """Yield address and short name under which a batch was sent: the judge's, where its calls are
    one's, else those of whoever speaks by this model."""
    spec = run.judge_specs().get(_judge_of(sent)[1] or "")
    if spec is not None:
        yield spec.api_base, None
    for member in run.manifest.cast.values():
        if member.model == sent.model:
            yield member.api_base, member.short


def _judge_of(sent: SentBatch) -> tuple[str, str | None]:
    """Return the kind of a batch's calls, and their judge's fingerprint where they are one's."""
    kind, _, rest = next((call.key for call in sent.calls), "").partition("/")
    return kind, rest.partition("/")[0] if kind in ("judge", "pair") else None
