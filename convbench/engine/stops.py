"""Ends what other threads do, where the command is interrupted: signals come to the main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_stops: list[Callable[[], None]] = []
_stopping = False


@contextmanager
def stoppable(stop: Callable[[], None]) -> Iterator[None]:
    """Have `stop` called, from another thread, should the command be interrupted meanwhile.
    KeyboardInterrupt where it has been already: nothing more is begun."""
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
    """Where this ends with an error or an interrupt, end all that is stoppable, and let nothing
    stoppable begin until `stopped_together` is over."""
    global _stopping
    try:
        yield
    except BaseException:
        with _lock:
            _stopping = True
            stops = list(_stops)
        for stop in stops:
            stop()
        raise


def begin_anew() -> None:
    """Let things begin again after an interrupt that was dealt with."""
    global _stopping
    with _lock:
        _stopping = False
