"""Processes that tests start and see end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def gone(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends within so many seconds."""
    for _ in range(round(seconds / 0.05)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


PATIENCE_S = 150.0
"""Longest wait for what must come about."""


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for something; bounded."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)
