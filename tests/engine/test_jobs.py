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

import pytest

from convbench.engine import Summary, run_in_loop, run_jobs
from convbench.errors import BudgetError, FatalModelError, RunError

ROOT = Path(__file__).resolve().parents[2]


async def _ran(
    work: object, jobs: object = range(20), **more: object
) -> tuple[Summary, list, list]:
    done: list[int] = []
    errors: list[tuple[int, Exception]] = []
    settings = {
        "on_done": lambda job, _: done.append(job),
        "on_error": lambda job, error: errors.append((job, error)),
        "concurrency": 4,
        **more,
    }
    return await run_jobs(jobs, work, **settings), done, errors


def test_all_jobs_run_and_failures_are_recorded() -> None:
    async def work(job: int) -> int:
        await asyncio.sleep(0)
        if job % 5 == 0:
            raise ValueError(f"bad {job}")
        return job

    summary, done, errors = asyncio.run(_ran(work))
    assert summary == Summary(done=16, failed=4)
    assert sorted(done) == [job for job in range(20) if job % 5]
    assert [str(error) for _, error in sorted(errors, key=str)] == [
        "bad 0", "bad 10", "bad 15", "bad 5",
    ]  # fmt: skip


def test_a_result_that_stops_the_run_is_recorded_and_no_job_begins_after_it() -> None:
    async def work(job: int) -> int:
        await asyncio.sleep(0)
        return job

    enough = FatalModelError("nothing can be read")
    summary, done, errors = asyncio.run(
        _ran(work, concurrency=1, stops=lambda job: enough if job == 2 else None)
    )
    assert summary == Summary(done=3, failed=0, stopped=enough)
    assert (done, errors) == ([0, 1, 2], [])


def test_jobs_are_taken_lazily_and_run_at_most_so_many_at_once() -> None:
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

    summary, _, errors = asyncio.run(_ran(work, jobs()))
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
def test_what_concerns_the_run_stops_it_and_is_no_failure(error: Exception) -> None:
    started = 0

    async def work(job: int) -> None:
        nonlocal started
        started += 1
        await asyncio.sleep(0.001 * job)
        if job == 3:
            raise error

    summary, done, errors = asyncio.run(_ran(work, range(1000)))
    assert errors == []
    assert started < 20
    assert 3 not in done
    assert type(summary.stopped) is (RunError if isinstance(error, OSError) else type(error))


def test_a_conversation_too_long_concerns_only_itself() -> None:
    async def work(job: int) -> None:
        if job == 3:
            raise FatalModelError("too long", stops_run=False)

    summary, _, errors = asyncio.run(_ran(work))
    assert summary == Summary(done=19, failed=1)
    assert [job for job, _ in errors] == [3]


def test_a_record_that_cannot_be_written_stops_the_run() -> None:
    def full(job: int, _: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "conversations.jsonl")

    async def work(job: int) -> None:
        await asyncio.sleep(0)

    summary, _, errors = asyncio.run(_ran(work, on_done=full))
    assert (summary.done, errors) == (0, [])
    assert "conversations.jsonl: cannot write: No space left on device" in str(summary.stopped)


SCRIPT = """
import asyncio, sys
from convbench.engine import run_in_loop, run_jobs

async def main():
    async def work(job):
        print("working", flush=True)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if {stubborn}:
                await asyncio.sleep(600)
            raise
    def never(*_):
        print("recorded")
    summary = await run_jobs(range(10**9), work, concurrency=8, on_done=never, on_error=never)
    print("interrupted", summary.interrupted, summary.done, summary.failed, flush=True)

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
    assert rest == "interrupted True 0 0\nresume with ...\n"


def test_a_signal_outside_of_jobs_is_a_keyboard_interrupt() -> None:
    async def main() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_in_loop(main)


def test_calls_in_flight_end_and_waits_do_not() -> None:
    from convbench.engine.jobs import check_gate, pause

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
            await pause(60)

    start = time.monotonic()
    summary, done, errors = asyncio.run(_ran(work, range(3)))
    assert time.monotonic() - start < 50
    assert (ended, done, errors) == (["call"], [], [])
    assert str(summary.stopped) == "spent"
