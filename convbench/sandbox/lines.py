"""Lines and time of a program that may be hostile: what it says is bounded, and how long it may."""

from __future__ import annotations

import os
import selectors
import time


class Deadline:
    """Seconds of the clock that all sandboxes of one grading share; they pass within `with`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began: float | None = None

    def left(self) -> float:
        """Return what is left, in seconds; negative once it is over."""
        return self.seconds - (0 if self.began is None else time.monotonic() - self.began)

    def __enter__(self) -> None:
        self.began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds, self.began = self.left(), None


class Lines:
    """Lines from a pipe whose other end may be hostile: none too long, none too late."""

    def __init__(self, fd: int, most: int) -> None:
        self.fd, self.most = fd, most
        self.held = bytearray()

    def next(self, seconds: float) -> bytes | None:
        """Return the next line; None at the end, past the time or past the length."""
        end, seen = time.monotonic() + seconds, 0
        with selectors.DefaultSelector() as selector:
            selector.register(self.fd, selectors.EVENT_READ)
            while (at := self.held.find(b"\n", seen)) < 0:
                seen, left = len(self.held), end - time.monotonic()
                if left <= 0 or seen > self.most or not selector.select(left):
                    return None
                more = os.read(self.fd, 1 << 16)
                if not more:
                    return None
                self.held += more
        line = bytes(self.held[:at])
        del self.held[: at + 1]
        return line
