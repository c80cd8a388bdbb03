"""Run many jobs at once: bounded, taken lazily, stopped cleanly."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from convbench.engine.progress import Status
from convbench.errors import (
    BudgetError,
    ConvbenchError,
    FatalModelError,
    MissingDependency,
    RunError,
)

GRACE_S = 3.0
"""Seconds that cancelled jobs get to end after an interrupt."""


class Stopped(ConvbenchError):
    """The run is stopping; this job is left unfinished, to be resumed later."""


class Gate:
    """Says whether jobs may begin calls, and which jobs are at work."""

    def __init__(self) -> None:
        self.reason: ConvbenchError | None = None
        self.interrupted = False
        self.tasks: set[asyncio.Task[None]] = set()
        """Those that run jobs and have not ended."""
        self.on_end: Callable[[], None] = lambda: None
        """Called whenever one of the tasks has ended."""
        self.stopping = asyncio.Event()
        """Set once the run is stopping."""

    def add_task(self, task: asyncio.Task[None]) -> None:
        """Add a task; it leaves by itself when it ends."""
        self.tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.on_end()

    def stop(self, reason: ConvbenchError) -> None:
        """Shut the gate because of `reason`, of which the first counts; calls in flight may end."""
        self.reason = self.reason or reason
        self.stopping.set()

    def interrupt(self) -> None:
        """Shut the gate and cancel all tasks at once, those with calls in flight included."""
        self.interrupted = True
        self.stopping.set()
        for task in tuple(self.tasks):
            task.cancel()


CURRENT: ContextVar[Gate | None] = ContextVar("gate", default=None)
"""The gate of the jobs for which this code runs."""


def check_gate() -> None:
    """Raise Stopped if the current jobs' gate is shut; do nothing outside of jobs."""
    gate = CURRENT.get()
    if gate is not None and gate.stopping.is_set():
        raise Stopped("the run is stopping")


async def pause(seconds: float) -> None:
    """Sleep; raise Stopped if the current jobs' run stops meanwhile."""
    gate = CURRENT.get()
    if gate is None:
        await asyncio.sleep(seconds)
        return
    try:
        await asyncio.wait_for(gate.stopping.wait(), seconds)
    except TimeoutError:
        return
    check_gate()


T = TypeVar("T")
J = TypeVar("J")
R = TypeVar("R")


async def or_stop(future: asyncio.Future[T]) -> T:
    """Return a future's result; raise Stopped if the current jobs' run stops before it."""
    gate = CURRENT.get()
    if gate is None:
        return await future
    stopping: asyncio.Future[Any] = asyncio.ensure_future(gate.stopping.wait())
    either: set[asyncio.Future[Any]] = {future, stopping}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not future.done():
        future.cancel()
        check_gate()
    return future.result()


@dataclass(frozen=True, slots=True)
class Summary:
    """How a batch of jobs ended."""

    done: int
    """Jobs that succeeded."""
    failed: int
    """Jobs that ended in a recorded failure: passed to `on_error`, or with a failed result."""
    interrupted: bool = False
    """True after Ctrl-C or SIGTERM."""
    stopped: ConvbenchError | None = None
    """What stopped the run before its end: budget, disk, a fatal model error."""


async def run_jobs(
    jobs: Iterable[J],
    work: Callable[[J], Awaitable[R]],
    *,
    concurrency: int,
    on_done: Callable[[J, R], None],
    on_error: Callable[[J, Exception], None],
    status: Status | None = None,
    failed: Callable[[R], bool] = lambda result: False,
    stops: Callable[[R], ConvbenchError | None] = lambda result: None,
) -> Summary:
    """Run `work` over `jobs`, taken one by one, at most `concurrency` at once; return how they
    ended.

    `on_done` and `on_error` write the records, one at a time. A result with a true `failed` counts
    as failed. The run stops, leaving unfinished jobs, after a result for which `stops` returns an
    error, and at BudgetError, RunError, MissingDependency, a FatalModelError that stops the run or
    a file that cannot be written. Any other exception of `work` goes to `on_error`.
    """
    gate, status, left = Gate(), status or Status(), iter(jobs)
    counts = {False: 0, True: 0}

    def record(write: Callable[[], None], has_failed: bool) -> None:
        try:
            write()
        except (OSError, RunError) as error:
            gate.stop(stop_reason(error) or RunError(str(error)))
            return
        counts[has_failed] += 1
        status.failed += has_failed
        status.done += not has_failed

    async def run_job(job: J) -> None:
        try:
            result = await work(job)
        except Stopped:
            return
        except Exception as raised:  # noqa: BLE001 - the boundary of a job
            error = raised  # the name of an `except` is gone after it
            if reason := stop_reason(error):
                gate.stop(reason)
            else:
                record(lambda: on_error(job, error), True)
            return
        record(lambda: on_done(job, result), failed(result))
        if reason := stops(result):
            gate.stop(reason)

    async def run_worker() -> None:
        while not gate.stopping.is_set():
            try:
                job = next(left)
            except StopIteration:
                return
            except OSError as error:
                gate.stop(stop_reason(error) or RunError(str(error)))
                return
            await run_job(job)

    token = CURRENT.set(gate)
    tasks = [asyncio.ensure_future(run_worker()) for _ in range(max(1, concurrency))]
    for task in tasks:
        gate.add_task(task)
    with _interruptible(gate):
        try:
            await _wait_for_all(tasks, gate)
        finally:
            CURRENT.reset(token)
    return Summary(counts[False], counts[True], gate.interrupted, gate.reason)


async def _wait_for_all(tasks: list[asyncio.Task[None]], gate: Gate) -> None:
    """Wait for all tasks; after an interrupt only GRACE_S seconds. Raises a task's exception."""
    pending = set(tasks)
    try:
        while pending:
            timeout = GRACE_S if gate.interrupted else 0.5
            wait = asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_EXCEPTION)
            was_interrupted = gate.interrupted
            done, pending = await wait
            if was_interrupted:
                return
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error
    except BaseException:
        gate.interrupt()
        await asyncio.wait(tasks, timeout=GRACE_S)
        raise


def stop_reason(error: Exception) -> ConvbenchError | None:
    """Return the error that stops the run; None if only this job failed."""
    if isinstance(error, BudgetError | RunError | MissingDependency):
        return error
    if isinstance(error, FatalModelError) and error.stops_run:
        return error
    if isinstance(error, OSError) and error.filename is not None and error.errno is not None:
        return RunError(
            f"{error.filename}: cannot write: {error.strerror}; records written so far stay "
            "readable; free space and resume"
        )
    return None


# interrupts

_lock = threading.Lock()
_stops: list[Callable[[], None]] = []
_stopping = False
_gates: dict[asyncio.AbstractEventLoop, list[Gate]] = {}
"""The gates of jobs that run in each loop, for signal handlers, which have no context."""


@contextmanager
def _interruptible(gate: Gate) -> Iterator[None]:
    gates = _gates.setdefault(asyncio.get_running_loop(), [])
    gates.append(gate)
    try:
        yield
    finally:
        gates.remove(gate)
        if not gates:
            _gates.pop(asyncio.get_running_loop(), None)


@contextmanager
def stop_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Register `stop` within this context, to be called from another thread if the command is
    interrupted.

    Raise KeyboardInterrupt if it was interrupted before and `begin_anew` was not called since.
    """
    with _lock:
        if _stopping:
            raise KeyboardInterrupt
        _stops.append(stop)
    try:
        yield
    finally:
        with _lock:
            _stops.remove(stop)


@contextmanager
def stopped_together() -> Iterator[None]:
    """Call all registered `stop` functions if this context ends with any exception, which then
    passes. Nothing can register again until `begin_anew` is called."""
    global _stopping
    try:
        yield
    except BaseException:
        with _lock:
            _stopping, stops = True, list(_stops)
        for stop in stops:
            stop()
        raise


def begin_anew() -> None:
    """Allow `stop` functions to be registered again after a handled interrupt."""
    global _stopping
    with _lock:
        _stopping = False


def run_in_loop(coro_factory: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of a command's coroutine, run in a loop that handles Ctrl-C and SIGTERM.

    A signal makes a running `run_jobs` return a Summary with `interrupted=True`; at any other
    moment it cancels the coroutine, and KeyboardInterrupt is raised here. A second signal has its
    usual effect at once. If this thread has a running loop (a notebook), the new one runs in
    another thread, and an interrupt acts as a signal.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run_main(coro_factory))
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "convbench") as threads:
        future = threads.submit(context.run, asyncio.run, _run_main(coro_factory))
        while True:
            try:
                return future.result()
            except KeyboardInterrupt:
                if future.done():
                    raise
                with _lock:
                    stops = list(_stops)
                for stop in stops:
                    stop()


async def _run_main(coro_factory: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the coroutine's result, with handlers of signals while it runs."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(coro_factory())
    interrupts = 0
    in_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main else ()

    def interrupt_soon() -> None:
        loop.call_soon_threadsafe(interrupt)

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        for number in signals:
            loop.remove_signal_handler(number)
        gates = [gate for gate in _gates.get(loop, ()) if not gate.interrupted]
        for gate in gates:
            gate.interrupt()
        if not gates:
            task.cancel()

    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        with stop_on_interrupt(interrupt_soon):
            return await task
    except asyncio.CancelledError:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
