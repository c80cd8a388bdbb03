"""Jobs that leave a record each: the one loop of jobs, journal and file behind every stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from convbench.engine.caller import Caller
from convbench.engine.jobs import Summary, run_jobs
from convbench.errors import FatalModelError
from convbench.store.jsonl import Appender

J = TypeVar("J")
R = TypeVar("R")


class RecordedJobs(ABC, Generic[J, R]):
    """What is done of each job, and what becomes of it: `file` gets its record when it ends."""

    file: Path

    @abstractmethod
    def jobs(self) -> Iterable[J]:
        """Return the jobs, `len(self)` of them."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    async def result(self, job: J) -> R:
        """Do a job. What it raises goes to `failed_result`, unless it ends the whole run."""

    @abstractmethod
    def failed_result(self, job: J, error: Exception) -> R | None:
        """Return the result of a job that broke; None leaves no record."""

    @abstractmethod
    def owns(self, key: str) -> bool:
        """Whether a call in the journal belongs to these jobs."""

    def key_prefix(self, job: J) -> str | None:
        """Return what the journal's keys of a job begin with: they go once its record is written.
        None keeps them."""
        return None

    def record(self, job: J, result: R) -> bytes:
        """Return the line of a job that ended."""
        line: str = result.model_dump_json()  # type: ignore[attr-defined]
        return line.encode()

    def is_failed(self, result: R) -> bool:
        """Whether a result is a failure."""
        return getattr(result, "failure", None) is not None

    def count(self, job: J, result: R) -> Any:
        """Take note of a record that is written."""

    def unreadable(self, result: R) -> str | None:
        """Return why nothing could be read of what a model replied, None for any other result: too
        many in a row stop the run."""
        return None


async def run_recorded(
    work: RecordedJobs[J, R], caller: Caller, concurrency: int, of: int | None = None
) -> Summary:
    """Do jobs, so many at once; a crash loses the calls in flight and no more, since finished calls
    are in the journal until the record that they went into is on disk. `of` is the number of jobs
    in all where these are a part of those that the caller asks about."""
    total = len(work)
    if caller.journal is not None:
        caller.journal.load(work.owns)
    if caller.waves is not None:
        caller.waves.load(work.owns)
    if caller.waves is not None or concurrency > total:
        # who waits for a batch costs next to nothing; a worker without a job, memory and no more
        concurrency = total
    caller.status.total = total if of is None else of
    with Appender(work.file) as file:

        def keep(job: J, result: R) -> None:
            file.write(work.record(job, result))
            prefix = work.key_prefix(job)
            if caller.journal is not None and prefix is not None:
                caller.journal.forget(prefix)
            work.count(job, result)

        def broken(job: J, error: Exception) -> None:
            result = work.failed_result(job, error)
            if result is not None:
                keep(job, result)

        def stops(result: R) -> FatalModelError | None:
            fault = work.unreadable(result)
            if fault is None and work.is_failed(result):
                return None  # failed for another reason, which says nothing of replies
            return caller.count_unreadable(fault)

        return await run_jobs(
            work.jobs(),
            work.result,
            concurrency=concurrency,
            on_done=keep,
            on_error=broken,
            status=caller.status,
            failed=work.is_failed,
            stops=stops,
        )
