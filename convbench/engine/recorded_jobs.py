"""Run jobs that write one record each: the loop of jobs, journal and file behind every stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from convbench.engine.caller import Caller
from convbench.engine.jobs import Stopped, Summary, run_jobs, stop_reason
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
        """Do a job and return its result; an exception that does not stop the run fails the job."""

    @abstractmethod
    def failed_result(self, job: J, error: Exception) -> R | None:
        """Return the result to record for a job that raised an error; None writes no record."""

    @abstractmethod
    def owns(self, key: str) -> bool:
        """Return True if a call with this key in the journal belongs to these jobs."""

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
        """Return why a model's reply could not be parsed, which too often in a row stops the run;
        None, the default, for any other result."""
        return None


async def run_recorded(work: RecordedJobs[J, R], caller: Caller, concurrency: int) -> Summary:
    """Run jobs, at most `concurrency` at once (all with batches), append their records; return how
    they ended.

    Open batches are collected and the calls of these jobs loaded from the journal first, so that a
    crash loses only the calls in flight.
    """
    if caller.batches is not None:
        await caller.batches.collect_open()
    if caller.journal is not None:
        caller.journal.load_calls(work.owns)
    caller.status.total = total = len(work)
    if caller.batches is not None:
        concurrency = total  # a job that waits for a batch costs next to nothing
    counts, unreadable = {False: 0, True: 0}, 0

    async def run_job(job: J) -> None:
        nonlocal unreadable
        failed, fault, result = True, None, None
        try:
            result = await work.result(job)
        except Exception as error:
            if isinstance(error, Stopped) or stop_reason(error) is not None:
                raise
            result = work.failed_result(job, error)
        else:
            failed, fault = work.is_failed(result), work.unreadable(result)
        if result is not None:
            file.write(work.record(job, result))
            work.count(job, result)
        counts[failed] += 1
        caller.status.done += not failed
        caller.status.failed += failed
        if fault is not None or not failed:
            unreadable = 0 if fault is None else unreadable + 1
        if unreadable >= caller.retry.unreadable:
            raise FatalModelError(
                f"{unreadable} results in a row could not be parsed, the last: {fault}; look at "
                "the replies (convbench view) and change the prompt or the model before you resume"
            )

    with Appender(work.file) as file:
        interrupted, stopped = await run_jobs(work.jobs(), run_job, min(concurrency, total))
    return Summary(counts[False], counts[True], interrupted, stopped)
