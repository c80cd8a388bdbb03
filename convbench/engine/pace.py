"""A rate that one process keeps: at most so many calls a second to each endpoint."""

from __future__ import annotations

import asyncio
import threading
import time

BURST_S = 0.25
"""Seconds' worth of calls that may go at once after a pause."""


class Pace:
    """Spaces calls out evenly, for each endpoint by itself."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        """Most calls a second."""
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    async def wait(self, endpoint: str) -> None:
        """Wait until a call may go."""
        with self._lock:
            now = time.monotonic()
            at = max(self._next.get(endpoint, 0.0), now - BURST_S)
            self._next[endpoint] = at + 1 / self.rate
        if at > now:
            await asyncio.sleep(at - now)
