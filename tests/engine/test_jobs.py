"""Jobs: bounded, lazy, stopped cleanly, interrupted quickly."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench.engine import Caller, RetryPolicy, Summary, run_in_loop
from convbench.engine.jobs import check_gate, or_stop
from convbench.engine.recorded_jobs import RecordedJobs, run_recorded
from convbench.errors import BudgetError, FatalModelError, RunError

ROOT = Path(__file__).resolve().parents[2]


class Numbers(RecordedJobs[int, object]):
    """Jobs whose records are their numbers."""

    def __init__(self, file: Path, work: Any, jobs: Any = range(20), bad: Any = None) -> None:
        self.file, self.work, self.numbers, self.bad = file, work, jobs, bad
        self.errors: list[str] = []

    def jobs(self) -> Any:
        return self.numbers

    def __len__(self) -> int:
        return 1000

    async def result(self, job: int) -> object:
        return await self.work(job)

    def failed_result(self, job: int, error: Exception) -> None:
        self.errors.append(str(error))

    def owns(self, key: str) -> bool:
        return True

    def record(self, job: int, result: object) -> bytes:
        return b"%d" % job

    def unreadable(self, result: object) -> str | None:
        return self.bad


def _ran(
    folder: Path, work: Any, *args: Any, concurrency: int = 4
) -> tuple[Summary, list[int], list[str]]:
    jobs = Numbers(folder / "jobs.jsonl", work, *args)
    caller = Caller(retry=RetryPolicy(unreadable=3))
    summary = asyncio.run(run_recorded(jobs, caller, concurrency))
    return summary, [int(line) for line in jobs.file.read_text().split()], jobs.errors


def test_all_jobs_run_and_failures_are_recorded(tmp_path: Path) -> None:
    async def work(job: int) -> int:
        await asyncio.sleep(0)
        if job % 5 == 0:
            raise ValueError(f"bad {job}")
        return job

    summary, done, errors = _ran(tmp_path, work)
    assert summary == Summary(done=16, failed=4)
    assert sorted(done) == [job for job in range(20) if job % 5]
    assert sorted(errors) == ["bad 0", "bad 10", "bad 15", "bad 5"]


def test_a_result_that_stops_the_run_is_recorded_and_no_job_begins_after_it(tmp_path: Path) -> None:
    async def work(job: int) -> int:
        await asyncio.sleep(0)
        return job

    summary, done, errors = _ran(tmp_path, work, range(20), "no score in it", concurrency=1)
    assert "3 results in a row could not be parsed, the last: no score" in str(summary.stopped)
    assert (done, errors) == ([0, 1, 2], [])


def test_jobs_are_taken_lazily_and_run_at_most_so_many_at_once(tmp_path: Path) -> None:
    taken, running, peak = 0, 0, 0

    def jobs() -> Iterator[int]:
        nonlocal taken
        for job in range(200):
            taken += 1
            yield job

    async def work(job: int) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        assert taken <= job + 8
        await asyncio.sleep(0)
        running -= 1

    summary, _, errors = _ran(tmp_path, work, jobs())
    assert (summary.done, errors, peak) == (200, [], 4)


@pytest.mark.parametrize(
    "error",
    [
        BudgetError("spent"),
        FatalModelError("wrong key"),
        RunError("damaged"),
        OSError(errno.ENOSPC, "No space left on device", "conversations.jsonl"),
    ],
)
def test_what_concerns_the_run_stops_it_and_is_no_failure(error: Exception, tmp_path: Path) -> None:
    started = 0

    async def work(job: int) -> None:
        nonlocal started
        started += 1
        await asyncio.sleep(0.001 * job)
        if job == 3:
            raise error

    summary, done, errors = _ran(tmp_path, work, range(1000))
    assert errors == []
    assert started < 20
    assert 3 not in done
    assert type(summary.stopped) is (RunError if isinstance(error, OSError) else type(error))


def test_a_conversation_too_long_concerns_only_itself(tmp_path: Path) -> None:
    async def work(job: int) -> None:
        if job == 3:
            raise FatalModelError("too long", stops_run=False)

    summary, _, errors = _ran(tmp_path, work)
    assert summary == Summary(done=19, failed=1)
    assert errors == ["too long"]


def test_a_record_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    class Full(Numbers):
        def record(self, job: int, result: object) -> bytes:
            raise OSError(errno.ENOSPC, "No space left on device", "conversations.jsonl")

    async def work(job: int) -> int:
        return job

    summary = asyncio.run(run_recorded(Full(tmp_path / "jobs", work), Caller(), 4))
    assert summary.done == summary.failed == 0
    assert "conversations.jsonl: cannot write: No space left on device" in str(summary.stopped)


SCRIPT = """
import asyncio
from convbench.engine.jobs import run_in_loop, run_jobs

async def main():
    async def work(job):
        print("working", flush=True)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if {stubborn}:
                await asyncio.sleep(600)
            raise
    print("interrupted", *await run_jobs(range(10**9), work, 8), flush=True)

run_in_loop(main)
print("resume with ...", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_time_and_the_command_goes_on(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(stubborn=False)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    for _ in range(8):
        assert process.stdout.readline() == "working\n"
    start = time.monotonic()
    os.kill(process.pid, number)
    rest = process.stdout.read()
    assert process.wait(60) == 0
    assert time.monotonic() - start < 60
    assert rest == "interrupted True None\nresume with ...\n"


def test_a_signal_outside_of_jobs_is_a_keyboard_interrupt() -> None:
    async def main() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_in_loop(main)


def test_calls_in_flight_end_and_waits_do_not(tmp_path: Path) -> None:
    ended: list[str] = []

    async def work(job: int) -> None:
        if job == 0:
            await asyncio.sleep(0.02)
            raise BudgetError("spent")
        if job == 1:
            check_gate()
            await asyncio.sleep(0.1)
            ended.append("call")
            check_gate()
            ended.append("never")
        if job == 2:
            await or_stop(asyncio.sleep(60))

    start = time.monotonic()
    summary, done, errors = _ran(tmp_path, work, range(3))
    assert time.monotonic() - start < 50
    assert (ended, done, errors) == (["call"], [], [])
    assert str(summary.stopped) == "spent"
