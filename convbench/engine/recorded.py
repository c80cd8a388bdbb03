"""Jobs that leave a record each: the one loop of jobs, journal and file behind every stage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from convbench.engine.caller import Caller
from convbench.engine.jobs import Summary, run_jobs
from convbench.errors import FatalModelError
from convbench.store.jsonl import Appender

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True)
class Recording(Generic[J, R]):
    """What becomes of jobs: `file` gets `line(job, result)` of each, in the order they end."""

    file: Path
    line: Callable[[J, R], bytes]
    """The record of a job that ended."""
    broken: Callable[[J, Exception], R | None]
    """The result of a job that broke; None leaves no record."""
    journalled: Callable[[str], bool]
    """Whether a call in the journal belongs to these jobs."""
    spent: Callable[[J], str] | None = None
    """Start of the journal keys that a job needs no more once its record is written."""
    failed: Callable[[R], bool] = lambda result: False
    """Whether a result is a failure."""
    count: Callable[[J, R], None] = lambda job, result: None
    """Told of every record."""
    unreadable: Callable[[R], str | None] = lambda result: None
    """Why nothing could be read of what a model replied, None for any other result: too many in a
    row stop the run."""


async def run_recorded(
    jobs: Iterable[J],
    total: int,
    work: Callable[[J], Awaitable[R]],
    recording: Recording[J, R],
    caller: Caller,
    concurrency: int,
    of: int | None = None,
) -> Summary:
    """Run `work` over `jobs`, `total` of them; a crash loses the calls in flight and no more, since
    finished calls are in the journal until the record that they went into is on disk. `of` is the
    number of jobs in all where these are a part of those that the caller asks about."""
    if caller.journal is not None:
        caller.journal.load(recording.journalled)
    if caller.waves is not None:
        caller.waves.load(recording.journalled)
    if caller.waves is not None or concurrency > total:
        # who waits for a batch costs next to nothing; a worker without a job, memory and no more
        concurrency = total
    caller.status.total = total if of is None else of
    with Appender(recording.file) as file:

        def keep(job: J, result: R) -> None:
            file.write(recording.line(job, result))
            if caller.journal is not None and recording.spent is not None:
                caller.journal.forget(recording.spent(job))
            recording.count(job, result)

        def broken(job: J, error: Exception) -> None:
            result = recording.broken(job, error)
            if result is not None:
                keep(job, result)

        def stops(result: R) -> FatalModelError | None:
            fault = recording.unreadable(result)
            if fault is None and recording.failed(result):
                return None  # failed for another reason, which says nothing of replies
            return caller.count_unreadable(fault)

        return await run_jobs(
            jobs, work, concurrency=concurrency, on_done=keep, on_error=broken,
            status=caller.status, failed=recording.failed, stops=stops,
        )  # fmt: skip
