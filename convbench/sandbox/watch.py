"""What a tree of processes uses, says last, and its end where it uses too much.

It stands apart from `convbench.guard`, which any interpreter runs by itself: a thread of ours
does this, within limits of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from convbench.guard import began_at, below, lives
from convbench.printable import printable

EVERY_S = 0.1
"""Between two looks; what one process holds is bounded by the kernel meanwhile."""
END_S = 5.0
"""For a guard to end all below it; a tenth is common."""
POLL_S = 0.02
REAP_S = 10.0


@dataclass(frozen=True, slots=True)
class Most:
    """What a tree of processes may use."""

    memory_bytes: int
    """Of their own, all together, shared files in memory not counted."""
    cpu_seconds: float = float("inf")
    """All together, those counted that have ended and were waited for."""
    seconds: float = float("inf")
    """Of the clock."""


def usage_of(pid: int) -> tuple[int, float]:
    """Return the bytes of memory that a process and all below it hold of their own, and the
    seconds of CPU that they have used."""
    memory, ticks = 0, 0
    for each in (pid, *below(pid)):
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{each}/status").read_text()
            memory += int(status.partition("RssAnon:")[2].split()[0]) << 10
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return memory, ticks / os.sysconf("SC_CLK_TCK")


class LastWords:
    """What a process writes to a named pipe, of which the last KEPT bytes are held."""

    KEPT = 4096
    AT_ONCE = 1 << 20
    """Bytes taken at one look, so that one who writes without end does not hold us."""
    LINE = 300
    """Characters of it that are shown."""

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe, 0o600)
        self._fd: int | None = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._said = b""

    def read(self) -> None:
        """Take what was written since, without waiting for more."""
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while self._fd is not None and taken < self.AT_ONCE:
                more = os.read(self._fd, 1 << 16)
                if not more:
                    return
                taken += len(more)
                self._said = (self._said + more)[-self.KEPT :]

    def close(self) -> None:
        """Read to the end and close the pipe."""
        self.read()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @property
    def line(self) -> str:
        """The line that says most: the last fatal one, else the last; empty where there is none."""
        lines = [one.strip() for one in self._said.decode("utf-8", "replace").splitlines()]
        fatal = [one for one in lines if "FATAL" in one]
        return printable(next(reversed(fatal or [one for one in lines if one]), ""))[: self.LINE]


class Watch:
    """Looks at a guard and all below it until one of the `first` ends, all together use too much,
    or `over` is set; then calls `noticed` and ends them all.

    The thread that does it needs no event loop, and ends a little over END_S later at the latest.
    """

    def __init__(
        self, guard: int, most: Most, words: LastWords, noticed: Callable[[], None]
    ) -> None:
        """`guard` is the number of a process of `convbench.guard`."""
        self.guard, self.most, self.words, self.noticed = guard, most, words, noticed
        self.first = [guard]
        self.why: str | None = None
        """What they used too much of; None while they did not."""
        self.over = threading.Event()
        """Set to end them."""
        self.seen: dict[int, str] = {}
        """Those below at the last look, each with the moment that it began."""
        self.thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self.thread.start()

    def _look(self) -> None:
        began = time.monotonic()
        while self.why is None and all(map(lives, self.first)) and not self.over.wait(EVERY_S):
            self.words.read()
            found = {pid: began_at(pid) for pid in below(self.guard)}
            if lives(self.guard):  # else they are no longer below it
                self.seen = found
            self.why = self._passed(time.monotonic() - began)
        self.words.close()
        self.noticed()
        self._end()

    def _end(self) -> None:
        """Have the guard end all. Kill what is left where it does not, since it is stopped, or was
        killed itself. The event loop that started the guard waits for it."""
        until = time.monotonic() + END_S
        if lives(self.guard):
            os.kill(self.guard, signal.SIGTERM)
        while lives(self.guard) and time.monotonic() < until:
            time.sleep(POLL_S)
        left = {pid for pid, at in self.seen.items() if began_at(pid) == at}
        if lives(self.guard):
            left |= {*below(self.guard)}
            os.kill(self.guard, signal.SIGKILL)
        if left:
            kill([*left])

    def _passed(self, seconds: float) -> str | None:
        memory, cpu = usage_of(self.guard)
        if memory > self.most.memory_bytes:
            return f"more than {self.most.memory_bytes >> 20} MiB of memory"
        if cpu > self.most.cpu_seconds:
            return f"more than {self.most.cpu_seconds:.0f} s of CPU"
        if seconds > self.most.seconds:
            return f"more than {self.most.seconds:.0f} s"
        return None


def kill(pids: list[int]) -> None:
    """Kill processes. Those that are left to us, where we adopt orphans as process 1 of a
    container does, are waited for by a thread."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    threading.Thread(target=_reap, args=(pids,), daemon=True).start()


def _reap(pids: list[int]) -> None:
    until = time.monotonic() + REAP_S
    while pids and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ChildProcessError):  # not ours, or not yet
                os.waitpid(pid, os.WNOHANG)
        pids = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        time.sleep(EVERY_S)
