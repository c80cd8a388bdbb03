"""A rate that all processes of a machine keep together: a small file for each endpoint.

It holds the time of the next call that may go (the virtual time of a leaky bucket) and until when
the provider asked for none. Its lock is the system's, for the file lies on this machine; between
machines each keeps its own, and who is told 429 slows down by itself (`engine.limiter`).
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import math
import os
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from convbench.errors import RunError

Step = Callable[[float, float], tuple[float, float]]
_BODY = struct.Struct("<dd")
BURST_S = 0.25
"""Seconds' worth of calls that may go at once after a pause."""
LONGEST_S = 3600.0
"""A time further ahead is nobody's."""


def usual_folder() -> Path:
    """Return the folder of this machine's buckets. RunError where it is another user's."""
    folder = Path(tempfile.gettempdir()) / f"convbench-rates-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise RunError(f"{folder}: cannot be made: {error.strerror or error}") from None
    if found.st_uid != os.getuid() or folder.is_symlink():
        raise RunError(f"{folder}: found another user's; expected a folder of your own")
    return folder


class Buckets:
    """The buckets of this machine, by endpoint."""

    def __init__(self, rate: float | None = None, folder: Path | None = None) -> None:
        """`rate` is the most calls a second to one endpoint; None keeps pauses alone."""
        self.rate = rate
        self._folder = folder or usual_folder()
        self._open: dict[str, int] = {}

    async def wait(self, endpoint: str) -> None:
        """Wait until a call may go."""
        at = self._reserve(endpoint)
        while True:
            now = time.time()
            until = max(at, self._times(endpoint)[1])
            if until <= now:
                return
            await asyncio.sleep(min(until - now, 1.0))

    def pause(self, endpoint: str, seconds: float | None) -> None:
        """Note that the provider wants no call for so long."""
        if seconds and math.isfinite(seconds) and seconds > 0:
            until = time.time() + min(seconds, LONGEST_S)
            self._change(endpoint, lambda free, paused: (free, max(paused, until)))

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _reserve(self, endpoint: str) -> float:
        """Return the time at which the next call may go, and take it."""
        if self.rate is None:
            return 0.0
        each, now = 1 / self.rate, time.time()
        at = 0.0

        def step(free: float, paused: float) -> tuple[float, float]:
            nonlocal at
            at = max(free, now - BURST_S)
            return at + each, paused

        self._change(endpoint, step)
        return at

    def _times(self, endpoint: str) -> tuple[float, float]:
        data = os.pread(self._file(endpoint), _BODY.size, 0)
        free, paused = _BODY.unpack(data) if len(data) == _BODY.size else (0.0, 0.0)
        latest = time.time() + LONGEST_S
        return (free if 0 <= free <= latest else 0.0), (paused if 0 <= paused <= latest else 0.0)

    def _change(self, endpoint: str, step: Step) -> None:
        descriptor = self._file(endpoint)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            os.pwrite(descriptor, _BODY.pack(*step(*self._times(endpoint))), 0)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _file(self, endpoint: str) -> int:
        if endpoint not in self._open:
            name = hashlib.sha256(endpoint.encode("utf-8", "replace")).hexdigest()[:24]
            path = self._folder / name
            try:
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
                self._open[endpoint] = os.open(path, flags, 0o600)
            except OSError as error:
                raise RunError(f"{path}: cannot be opened: {error.strerror or error}") from None
        return self._open[endpoint]

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()
