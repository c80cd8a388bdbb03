"""The gate between jobs and calls: once it is shut, no new call begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
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

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Mark a wait between calls (a free place, a backoff): it ends with Stopped when the
        gate shuts, where a call in flight would be let end."""
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if self.interrupted or self.reason is None:
                raise
            task.uncancel()
            raise Stopped("the run is stopping") from None
        finally:
            self._idle.discard(task)


CURRENT: ContextVar[Gate | None] = ContextVar("gate", default=None)
"""The gate of the jobs that this code runs for."""


def enter() -> None:
    """Raise Stopped where the gate is shut; called before each new model call."""
    gate = CURRENT.get()
    if gate is not None and gate.shut:
        raise Stopped("the run is stopping")


@contextmanager
def idle() -> Iterator[None]:
    """Mark a wait of the current gate's jobs; without a gate it changes nothing."""
    gate = CURRENT.get()
    if gate is None:
        yield
        return
    with gate.idle():
        yield
