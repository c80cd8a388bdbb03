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
from functools import partial
from typing import Any, TypeVar

from convbench.errors import (
    BudgetError,
    ConvbenchError,
    FatalModelError,
    MissingDependency,
    RunError,
)

T = TypeVar("T")
J = TypeVar("J")

GRACE_S = 3.0
"""Seconds that cancelled jobs get to end after an interrupt."""


class Stopped(ConvbenchError):
    """The run is stopping; this job is left unfinished, to be resumed later."""


class Gate:
    """Says whether calls may begin, until `stopping` is set, and which tasks run jobs; `on_end` is
    called whenever one of them has ended."""

    def __init__(self) -> None:
        self.stopping: asyncio.Future[ConvbenchError | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.tasks: set[asyncio.Task[Any] | None] = set()
        self.on_end: Callable[[], None] = lambda: None

    def stop(self, reason: ConvbenchError | None) -> None:
        """Let no further call begin because of `reason`, of which the first counts."""
        if not self.stopping.done():
            self.stopping.set_result(reason)


CURRENT: ContextVar[Gate | None] = ContextVar("gate", default=None)
"""The gate of the jobs for which this code runs."""


def check_gate() -> None:
    """Raise Stopped if the current jobs' gate is shut; do nothing outside of jobs."""
    gate = CURRENT.get()
    if gate is not None and gate.stopping.done():
        raise Stopped("the run is stopping")


async def or_stop(waiting: Awaitable[T]) -> T:
    """Return what is waited for; cancel it and raise Stopped if the current jobs stop before."""
    gate = CURRENT.get()
    if gate is None:
        return await waiting
    future = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait((future, gate.stopping), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            check_gate()
        return future.result()
    finally:
        future.cancel()


@dataclass(frozen=True, slots=True)
class Summary:
    """How jobs ended: the numbers of those that succeeded and that ended in a recorded failure,
    whether by Ctrl-C or SIGTERM, and what stopped the run (budget, disk, a fatal model error)."""

    done: int
    failed: int
    interrupted: bool = False
    stopped: ConvbenchError | None = None


async def run_jobs(
    jobs: Iterable[J], work: Callable[[J], Awaitable[object]], concurrency: int
) -> tuple[bool, ConvbenchError | None]:
    """Run `work` over `jobs`, taken one by one, at most `concurrency` at once; return (interrupted,
    what stopped the run or None). No job begins after a `work` that raises (`stop_reason`): calls
    in flight may end, waits do not. Being cancelled is an interrupt, which cancels all jobs."""
    gate, left, interrupted = Gate(), iter(jobs), False

    async def run_worker() -> None:
        try:
            for job in left:
                if gate.stopping.done():
                    break
                await work(job)
        except Stopped:
            pass
        except Exception as error:
            if (reason := stop_reason(error)) is None:
                raise
            gate.stop(reason)
        finally:
            gate.tasks.discard(asyncio.current_task())
            gate.on_end()

    token = CURRENT.set(gate)
    tasks = [asyncio.ensure_future(run_worker()) for _ in range(max(1, concurrency))]
    gate.tasks.update(tasks)
    CURRENT.reset(token)
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in ended:
            task.result()
    except asyncio.CancelledError:
        interrupted = True
        if (current := asyncio.current_task()) is not None:
            current.uncancel()
    finally:
        gate.stop(None)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=GRACE_S)
    return interrupted, gate.stopping.result()


def stop_reason(error: Exception) -> ConvbenchError | None:
    """Return the error that stops the run; None if only this job failed."""
    stops = isinstance(error, FatalModelError) and error.stops_run
    if isinstance(error, BudgetError | RunError | MissingDependency) or stops:
        return error  # type: ignore[return-value]
    if isinstance(error, OSError) and error.filename is not None and error.errno is not None:
        return RunError(
            f"{error.filename}: cannot write: {error.strerror}; records written so far stay "
            "readable; free space and resume"
        )
    return None


_lock = threading.Lock()
_stops: list[Callable[[], object]] = []
_stopping = False


@contextmanager
def stop_on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Register `stop` within this context, to be called from another thread on an interrupt. Raise
    KeyboardInterrupt while a pool of `stopped_together` is being stopped."""
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
def stopped_together(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads. If this context ends with an exception all registered `stop`
    functions are called, and nothing can register until the threads have ended."""
    global _stopping
    try:
        with ThreadPoolExecutor(threads, "step") as pool:
            try:
                yield pool
            except BaseException:
                with _lock:
                    _stopping, stops = True, list(_stops)
                for stop in stops:
                    stop()
                raise
    finally:
        _stopping = False


def run_in_loop(coro_factory: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of a command's coroutine, run in a loop that handles Ctrl-C and SIGTERM: a
    running `run_jobs` returns; at any other moment KeyboardInterrupt is raised here. A second one
    has its usual effect. Where a loop runs (a notebook), the new one is in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run_main(coro_factory))
    in_context = contextvars.copy_context().run
    with stopped_together(1) as threads:
        return threads.submit(in_context, asyncio.run, _run_main(coro_factory)).result()


async def _run_main(coro_factory: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    in_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    assert task is not None

    def interrupt() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        with stop_on_interrupt(partial(loop.call_soon_threadsafe, interrupt)):
            return await coro_factory()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
