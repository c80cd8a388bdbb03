"""Clock of the time in forward and backward passes, and of the total time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class PassClock:
    """Counts the seconds in passes (on a GPU: of launching them, not of waiting for their end)."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.passes = 0.0

    @contextmanager
    def count_pass(self) -> Iterator[None]:
        """Add the seconds that the `with` block takes to `passes`, the time in forward and backward
        passes."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.passes += time.perf_counter() - began

    @property
    def total(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.started
