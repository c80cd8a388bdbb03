"""Adaptive concurrency for one endpoint: 429 shrinks it, success lets it grow back."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from convbench.engine.gate import idle
from convbench.engine.status import Endpoint

SHRINK = 0.6
"""Factor on the limit at a 429."""
GROW = 1 / 16
"""Share of the highest limit that is won back by one window of successes."""


class Limiter:
    """Lets at most `limit` calls run at once (additive increase, multiplicative decrease).

    Calls that were sent before the last shrink do not shrink it again: a burst of 429s that one
    moment of overload caused counts once.
    """

    def __init__(self, highest: int) -> None:
        self.state = Endpoint(limit=highest, highest=highest)
        self._limit = float(highest)
        self._shrunk_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def slot(self) -> _Slot:
        """Wait for a free place and hold it; gives the time it was got."""
        return _Slot(self)

    async def take(self) -> None:
        """Wait for a free place and take it."""
        if self._free() and not self._waiting:
            self.state.in_flight += 1
            return
        with idle():
            await self._acquire()

    def leave(self) -> None:
        """Give a place back."""
        self.state.in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        """A call came back: grow by a share of a window."""
        if self._limit < self.state.highest:
            step = max(1.0, self.state.highest * GROW) / self._limit
            self._set(self._limit + step)
            self._wake()

    def limited(self, sent: float, retry_after: float | None) -> None:
        """A call sent at `sent` met 429: shrink, and pause where the provider said how long."""
        if sent >= self._shrunk_at:
            self._shrunk_at = time.monotonic()
            self._set(min(self._limit, self.state.in_flight or 1) * SHRINK)
        if retry_after:
            until = time.monotonic() + retry_after
            self.state.paused_until = max(self.state.paused_until, until)

    def _set(self, value: float) -> None:
        self._limit = min(max(1.0, value), float(self.state.highest))
        self.state.limit = int(self._limit)

    def _free(self) -> bool:
        paused = self.state.paused_until > time.monotonic()
        return not paused and self.state.in_flight < self.state.limit

    async def _acquire(self) -> None:
        """Wait until one that leaves, or the end of a pause, gives this call its place."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wake()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.state.in_flight -= 1
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self._free():
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.state.in_flight += 1
                waiter.set_result(None)
        pause = self.state.paused_until - time.monotonic()
        if self._waiting and pause > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(pause + 0.001, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()


class _Slot:
    """A place that is held; a class and no generator, since every call takes one."""

    __slots__ = ("_limiter",)

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def __aenter__(self) -> float:
        await self._limiter.take()
        return time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        self._limiter.leave()
