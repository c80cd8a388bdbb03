"""Run jobs that write one record each: the loop of jobs, journal and file behind every stage."""

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
    """Jobs, their work and their records; `file` gets the record of each job when it ends."""

    file: Path

    @abstractmethod
    def jobs(self) -> Iterable[J]:
        """Return the jobs that are to be run, `len(self)` of them; they are taken one by one."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    async def result(self, job: J) -> R:
        """Do a job and return its result.

        An exception that does not stop the run goes to `failed_result`.
        """

    @abstractmethod
    def failed_result(self, job: J, error: Exception) -> R | None:
        """Return the result to record for a job that raised an error; None writes no record.

        The job counts as failed either way.
        """

    @abstractmethod
    def owns(self, key: str) -> bool:
        """Return True if a call with this key in the journal belongs to these jobs."""

    def key_prefix(self, job: J) -> str | None:
        """Return the prefix of a job's keys in the journal, whose calls are dropped from memory
        once the job's record is written; None, the default, keeps them."""
        return None

    def record(self, job: J, result: R) -> bytes:
        """Return the line that is written for a job's result: by default its JSON."""
        line: str = result.model_dump_json()  # type: ignore[attr-defined]
        return line.encode()

    def is_failed(self, result: R) -> bool:
        """Return True if a result is a failure: by default if its `failure` is not None."""
        return getattr(result, "failure", None) is not None

    def count(self, job: J, result: R) -> Any:
        """Count a record that was written; by default nothing is done."""

    def unreadable(self, result: R) -> str | None:
        """Return why a model's reply could not be parsed; None, the default, for any other result.

        Too many in a row stop the run.
        """
        return None


async def run_recorded(work: RecordedJobs[J, R], caller: Caller, concurrency: int) -> Summary:
    """Run jobs, at most `concurrency` at once (all with batches), append their records; return how
    they ended.

    Open batches are collected and the calls of these jobs loaded from the journal first, and
    forgotten once a job's record is written, so that a crash loses only the calls in flight.
    """
    total = len(work)
    if caller.batches is not None:
        await caller.batches.collect_open()
    if caller.journal is not None:
        caller.journal.load_calls(work.owns)
    if caller.batches is not None or concurrency > total:
        # a job that waits for a batch costs next to nothing; a worker without a job costs memory
        concurrency = total
    caller.status.total = total
    with Appender(work.file) as file:

        def write_record(job: J, result: R) -> None:
            file.write(work.record(job, result))
            prefix = work.key_prefix(job)
            if caller.journal is not None and prefix is not None:
                caller.journal.forget_calls(prefix)
            work.count(job, result)

        def record_error(job: J, error: Exception) -> None:
            result = work.failed_result(job, error)
            if result is not None:
                write_record(job, result)

        def stop_after(result: R) -> FatalModelError | None:
            fault = work.unreadable(result)
            if fault is None and work.is_failed(result):
                return None  # failed for another reason, which says nothing about replies
            return caller.count_unreadable(fault)

        return await run_jobs(
            work.jobs(),
            work.result,
            concurrency=concurrency,
            on_done=write_record,
            on_error=record_error,
            status=caller.status,
            failed=work.is_failed,
            stops=stop_after,
        )
