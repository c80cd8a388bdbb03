"""Seconds spent in the model's passes, of all seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Counts the seconds within `passing` blocks (on a GPU: of starting them, not of their end)."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.passes = 0.0

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Count what runs in the block as forward or backward pass."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.passes += time.perf_counter() - began

    @property
    def total(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.started
