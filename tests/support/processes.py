"""Processes that tests start and see end."""

from __future__ import annotations

import os
import time


def gone(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends within so many seconds."""
    for _ in range(round(seconds / 0.05)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
