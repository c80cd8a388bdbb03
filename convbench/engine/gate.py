"""The gate between jobs and calls: once it is shut, no new call begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import ClassVar

from convbench.errors import ConvbenchError


class Stopped(ConvbenchError):
    """The run is being stopped; this job is left as it is, to be resumed later."""


class Gate:
    """Open while jobs may begin calls. `interrupted` is set by Ctrl-C or SIGTERM."""

    running: ClassVar[list[Gate]] = []
    """Gates of all jobs that run now, for signal handlers, which have no context."""

    def __init__(self) -> None:
        self.reason: ConvbenchError | None = None
        self.interrupted = False
        self.thread = threading.get_ident()
        """Whose loop its jobs run in."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[object]] = set()
        self.on_end: Callable[[], None] = lambda: None
        """Told whenever one of the tasks has ended."""

    def add(self, task: asyncio.Task[None]) -> None:
        """Let an interrupt cancel this task."""
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.on_end()

    @property
    def tasks(self) -> AbstractSet[asyncio.Task[None]]:
        """Those that have not ended: whatever may still make a call."""
        return self._tasks

    @property
    def shut(self) -> bool:
        """True once the run is stopping."""
        return self.interrupted or self.reason is not None

    def stop(self, reason: ConvbenchError) -> None:
        """Begin no more calls because of `reason`; calls in flight may end."""
        if self.reason is None:
            self.reason = reason
        for task in tuple(self._idle):
            task.cancel()

    def interrupt(self) -> None:
        """Stop at once: cancel what is in flight."""
        self.interrupted = True
        for task in tuple(self._tasks):
            task.cancel()

    def idle(self) -> _Idle:
        """Mark a wait between calls (a free place, a backoff): it ends with Stopped when the
        gate shuts, where a call in flight would be let end."""
        return _Idle(self)


class _Idle:
    """A marked wait; a class and no generator, since every call waits so several times."""

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
"""The gate of the jobs that this code runs for."""


def enter() -> None:
    """Raise Stopped where the gate is shut; called before each new model call."""
    gate = CURRENT.get()
    if gate is not None and gate.shut:
        raise Stopped("the run is stopping")


def idle() -> AbstractContextManager[None]:
    """Mark a wait of the current gate's jobs; without a gate it changes nothing."""
    gate = CURRENT.get()
    return nullcontext() if gate is None else gate.idle()
