"""An event loop that takes together what comes within moments of each other: it saves CPU.

With 64 calls in flight a reply comes every few milliseconds, and a process that sleeps between any
two of them wakes to cold caches each time: a call then costs half as much again. So once something
has come after a sleep, a moment is waited for more: a hundredth of what the quickest reply took,
and no more than 5 ms. A loop that has not slept, since replies come as fast as it takes them, waits
for nothing.
"""

from __future__ import annotations

import asyncio
import selectors
import time

SHARE = 1 / 100
"""Of the quickest reply's time: the longest that a reply waits for others."""
LONGEST_S = 0.005
"""Longest wait: longer ones save little more."""
FORGETS = 1.01
"""Times the quickest reply is taken to be slower with each that follows it."""


class Gathering(selectors.DefaultSelector):
    """Tells what can be read and written, after a moment's wait for more of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pause_s = 0.0
        """How long it waits after a sleep."""
        self._quickest_s = 0.0

    def replied(self, seconds: float) -> None:
        """Note what a reply took."""
        quickest = self._quickest_s * FORGETS
        self._quickest_s = min(quickest, seconds) if quickest else seconds
        self.pause_s = min(self._quickest_s * SHARE, LONGEST_S)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what can be read and written within `timeout` seconds."""
        if not self.pause_s:
            return super().select(timeout)
        found = super().select(0)
        if found or timeout == 0:
            return found
        found = super().select(timeout)
        if found:
            time.sleep(self.pause_s)
            found = super().select(0)
        return found


class GatheringLoop(asyncio.SelectorEventLoop):
    """The loop that a command's calls are made in."""

    def __init__(self) -> None:
        self.gathering = Gathering()
        super().__init__(self.gathering)


def replied(seconds: float) -> None:
    """Tell the loop that runs now what a reply took."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, GatheringLoop):
        loop.gathering.replied(seconds)
