"""An event loop that handles replies arriving within moments of each other together, to save CPU.

With 64 calls in flight a reply arrives every few milliseconds, and a process that sleeps between
any two of them wakes to cold caches each time: a call then costs half as much again. So after a
sleep ends, the loop waits a moment for more events: a hundredth of the quickest reply's time, and
at most 5 ms. A loop that has not slept, because replies arrive as fast as it handles them, does not
wait.
"""

from __future__ import annotations

import asyncio
import selectors
import time

SHARE = 1 / 100
"""Longest wait of a reply for others, as a share of the quickest reply's time."""
LONGEST_S = 0.005
"""Longest wait in seconds; longer ones save little more."""
FORGETS = 1.01
"""Factor by which the quickest time grows with each later reply, so that it adapts."""


class GatheringSelector(selectors.DefaultSelector):
    """A selector that waits a moment after a sleep, to return more events at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pause_s = 0.0
        """Seconds that it waits after a sleep."""
        self._quickest_s = 0.0

    def note_reply(self, seconds: float) -> None:
        """Record the seconds that a reply took, and set `pause_s` by the quickest one, at most 5
        ms."""
        quickest = self._quickest_s * FORGETS
        self._quickest_s = min(quickest, seconds) if quickest else seconds
        self.pause_s = min(self._quickest_s * SHARE, LONGEST_S)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return (key, events) of the files that are ready within `timeout` seconds; None waits
        without end.

        After a wait it sleeps `pause_s` more, so that further events are returned together.
        """
        if not self.pause_s:
            return super().select(timeout)
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        ready = super().select(timeout)
        if ready:
            time.sleep(self.pause_s)
            ready = super().select(0)
        return ready


class GatheringLoop(asyncio.SelectorEventLoop):
    """The event loop in which a command's calls are made."""

    def __init__(self) -> None:
        self.gathering = GatheringSelector()
        super().__init__(self.gathering)


def note_reply_time(seconds: float) -> None:
    """Record the seconds that a reply took if the running loop is a GatheringLoop; else do
    nothing."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, GatheringLoop):
        loop.gathering.note_reply(seconds)
