"""Run many jobs at once: bounded, taken lazily, stopped cleanly."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar

from convbench.engine.gathering import GatheringLoop
from convbench.engine.progress import Status
from convbench.errors import (
    BudgetError,
    ConvbenchError,
    FatalModelError,
    MissingDependency,
    RunError,
)


class Stopped(ConvbenchError):
    """The run is stopping; this job is left unfinished, to be resumed later."""


class Gate:
    """Says whether jobs may begin calls. `interrupted` is set by Ctrl-C or SIGTERM."""

    running: ClassVar[list[Gate]] = []
    """Gates of all running jobs, for signal handlers, which have no context."""

    def __init__(self) -> None:
        self.reason: ConvbenchError | None = None
        self.interrupted = False
        self.thread = threading.get_ident()
        """Id of the thread in whose loop its jobs run."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[object]] = set()
        self.on_end: Callable[[], None] = lambda: None
        """Called whenever one of the tasks has ended."""

    def add_task(self, task: asyncio.Task[None]) -> None:
        """Add a task, which an interrupt then cancels; it leaves by itself when it ends."""
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.on_end()

    @property
    def tasks(self) -> AbstractSet[asyncio.Task[None]]:
        """Return the tasks that have not ended, as a live set: do not change it."""
        return self._tasks

    @property
    def is_shut(self) -> bool:
        """Return True once the run is stopping, by `stop` or an interrupt."""
        return self.interrupted or self.reason is not None

    def stop(self, reason: ConvbenchError) -> None:
        """Shut the gate because of `reason`, of which the first counts; calls in flight may end.

        Tasks that wait between calls get Stopped.
        """
        if self.reason is None:
            self.reason = reason
        for task in tuple(self._idle):
            task.cancel()

    def interrupt(self) -> None:
        """Shut the gate and cancel all tasks at once, those with calls in flight included."""
        self.interrupted = True
        for task in tuple(self._tasks):
            task.cancel()

    def mark_idle(self) -> _IdleWait:
        """Return a context manager for a wait of the current task between calls (for a slot, a
        backoff).

        It raises Stopped when `stop` shuts the gate; an interrupt cancels the task as usual.
        """
        return _IdleWait(self)


class _IdleWait:
    """Context manager for a wait that raises Stopped when the run stops.

    A class is faster than a generator, and every call enters several."""

    __slots__ = ("_gate", "_task")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._gate._idle.add(task)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate._idle.discard(self._task)
        shut = not self._gate.interrupted and self._gate.reason is not None
        if isinstance(error, asyncio.CancelledError) and shut:
            self._task.uncancel()
            raise Stopped("the run is stopping") from None


CURRENT: ContextVar[Gate | None] = ContextVar("gate", default=None)
"""The gate of the jobs for which this code runs."""


def check_gate() -> None:
    """Raise Stopped if the current jobs' gate is shut; do nothing outside of jobs."""
    gate = CURRENT.get()
    if gate is not None and gate.is_shut:
        raise Stopped("the run is stopping")


def idle_wait() -> AbstractContextManager[None]:
    """Return a context manager for a wait between calls that raises Stopped when the run stops.

    Outside of jobs it does nothing.
    """
    gate = CURRENT.get()
    return nullcontext() if gate is None else gate.mark_idle()


_stop_lock = threading.Lock()
_stop_calls: list[Callable[[], None]] = []
_stopping = False


@contextmanager
def stop_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Register `stop` within this context, to be called from another thread if the command is
    interrupted.

    Raise KeyboardInterrupt if it was interrupted before and `begin_anew` was not called since.
    """
    with _stop_lock:
        if _stopping:
            raise KeyboardInterrupt
        _stop_calls.append(stop)
    try:
        yield
    finally:
        with _stop_lock:
            _stop_calls.remove(stop)


@contextmanager
def stopped_together() -> Iterator[None]:
    """Call all registered `stop` functions if this context ends with any exception, which then
    passes.

    Nothing can register again until `begin_anew` is called.
    """
    global _stopping
    try:
        yield
    except BaseException:
        with _stop_lock:
            _stopping = True
            stops = list(_stop_calls)
        for stop in stops:
            stop()
        raise


def begin_anew() -> None:
    """Allow `stop` functions to be registered again after a handled interrupt."""
    global _stopping
    with _stop_lock:
        _stopping = False


J = TypeVar("J")
R = TypeVar("R")

GRACE_S = 3.0
"""Seconds that cancelled jobs get to end after an interrupt."""


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
    a disk error. Any other exception of `work` goes to `on_error`.
    """
    gate = Gate()
    token = CURRENT.set(gate)
    pool = _WorkerPool(iter(jobs), work, on_done, on_error, failed, stops, gate, status or Status())
    tasks = [asyncio.ensure_future(pool.run_worker()) for _ in range(max(1, concurrency))]
    for task in tasks:
        gate.add_task(task)
    Gate.running.append(gate)
    try:
        await _all(tasks, gate)
    except asyncio.CancelledError:
        gate.interrupt()
        await asyncio.wait(tasks, timeout=GRACE_S)
        raise
    finally:
        Gate.running.remove(gate)
        CURRENT.reset(token)
    return Summary(pool.done, pool.failed, gate.interrupted, gate.reason)


async def _all(tasks: list[asyncio.Task[None]], gate: Gate) -> None:
    """Wait for all tasks; after an interrupt only GRACE_S seconds. Raises a task's exception."""
    pending = set(tasks)
    while pending:
        timeout = GRACE_S if gate.interrupted else 0.5
        done, pending = await asyncio.wait(pending, timeout=timeout)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                gate.interrupt()
                await asyncio.wait(pending or {task}, timeout=GRACE_S)
                raise error
        if gate.interrupted and not done:
            return


class _WorkerPool(Generic[J, R]):
    """A pool of workers that share one iterator of jobs."""

    def __init__(
        self,
        jobs: Iterator[J],
        work: Callable[[J], Awaitable[R]],
        on_done: Callable[[J, R], None],
        on_error: Callable[[J, Exception], None],
        failing: Callable[[R], bool],
        stops: Callable[[R], ConvbenchError | None],
        gate: Gate,
        status: Status,
    ) -> None:
        self.jobs, self.work, self.gate, self.status = jobs, work, gate, status
        self.on_done, self.on_error = on_done, on_error
        self.failing, self.stops = failing, stops
        self.done = self.failed = 0

    async def run_worker(self) -> None:
        """Run jobs until there are none, or the gate is shut."""
        while not self.gate.is_shut:
            try:
                job = next(self.jobs)
            except StopIteration:
                return
            except OSError as error:
                self.gate.stop(_disk_error(error))
                return
            await self._run_job(job)

    async def _run_job(self, job: J) -> None:
        try:
            result = await self.work(job)
        except Exception as error:  # noqa: BLE001 - the boundary of a job
            self._handle_error(job, error)
            return
        if self._try_record(lambda: self.on_done(job, result)):
            self._count_job(self.failing(result))
            if reason := self.stops(result):
                self.gate.stop(reason)

    def _handle_error(self, job: J, error: Exception) -> None:
        """Handle a job's exception: leave the job, stop the run, or record a failure."""
        if isinstance(error, Stopped):
            return
        if reason := _stop_reason(error):
            self.gate.stop(reason)
        elif self._try_record(lambda: self.on_error(job, error)):
            self._count_job(True)

    def _count_job(self, failed: bool) -> None:
        """Count a job that ended, both for the summary and for the display."""
        self.failed += failed
        self.done += not failed
        self.status.failed += failed
        self.status.done += not failed

    def _try_record(self, record: Callable[[], None]) -> bool:
        """Call a callback and return True; return False and stop the run if it cannot write."""
        try:
            record()
        except (OSError, RunError) as error:
            self.gate.stop(error if isinstance(error, RunError) else _disk_error(error))
            return False
        return True


def _stop_reason(error: Exception) -> ConvbenchError | None:
    """Return the error that stops the run; None if only this job failed."""
    if isinstance(error, BudgetError | RunError | MissingDependency):
        return error
    if isinstance(error, FatalModelError) and error.stops_run:
        return error
    if isinstance(error, OSError) and error.errno in _DISK:
        return _disk_error(error)
    return None


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG}


def _disk_error(error: OSError) -> RunError:
    where = f"{error.filename}: " if error.filename else ""
    return RunError(
        f"{where}cannot write: {error.strerror or error}; records written so far stay "
        "readable; free space and resume"
    )


T = TypeVar("T")


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
        return _run_in_this_thread(_run_main(coro_factory))
    return _run_in_side_thread(coro_factory)


def _run_in_this_thread(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=GatheringLoop) as runner:
        return runner.run(main)


def _run_in_side_thread(coro_factory: Callable[[], Coroutine[Any, Any, T]]) -> T:
    started: list[tuple[asyncio.AbstractEventLoop, _SignalHandler]] = []
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "convbench") as threads:
        future = threads.submit(context.run, _run_in_this_thread, _run_main(coro_factory, started))
        while True:
            try:
                return future.result()
            except KeyboardInterrupt:
                if future.done():
                    raise
                for loop, handler in started:
                    loop.call_soon_threadsafe(handler.interrupt)


async def _run_main(
    coro_factory: Callable[[], Coroutine[Any, Any, T]],
    started: list[tuple[asyncio.AbstractEventLoop, _SignalHandler]] | None = None,
) -> T:
    """Return the coroutine's result; the loop and its signal handler are appended to `started`, for
    interrupts from another thread."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(coro_factory())
    handler = _SignalHandler(task)
    aside = threading.current_thread() is not threading.main_thread()
    handled = () if aside or started is not None else (signal.SIGINT, signal.SIGTERM)
    if started is not None:
        started.append((loop, handler))
    for number in handled:
        loop.add_signal_handler(number, handler.on_signal, loop)
    try:
        with stop_on_interrupt(partial(_interrupt_loop, loop, handler)):
            return await task
    except asyncio.CancelledError:
        if handler.count:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _interrupt_loop(loop: asyncio.AbstractEventLoop, handler: _SignalHandler) -> None:
    """Act as a signal does, from another thread."""
    loop.call_soon_threadsafe(handler.interrupt)


class _SignalHandler:
    """Handles signals: interrupts the running gates, or else cancels the command."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.count = 0

    def on_signal(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        self.interrupt()

    def interrupt(self) -> None:
        """Interrupt this thread's running gates, or cancel the command if there is none."""
        self.count += 1
        own = threading.get_ident()  # gates may be changed in their own thread only
        gates = [gate for gate in Gate.running if gate.thread == own and not gate.interrupted]
        for gate in gates:
            gate.interrupt()
        if not gates:
            self.task.cancel()
