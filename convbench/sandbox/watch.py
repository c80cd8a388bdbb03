"""What a tree of processes uses, and its end where that is too much."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 0.1
"""Between two looks; what one process holds is bounded by the kernel meanwhile."""
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


def below(pid: int) -> Iterator[int]:
    """Yield the numbers of a process's children, theirs and so on, parents first."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                    yield int(child)
                    yield from below(int(child))


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


class Watch:
    """Looks at a tree of processes until it ends, and says why it had to end it."""

    def __init__(self, pid: int, most: Most, end: Callable[[], None]) -> None:
        self.pid, self.most, self.end = pid, most, end
        self.why: str | None = None
        """What it used too much of; None while it did not."""
        self.over = threading.Event()
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def _look(self) -> None:
        began = time.monotonic()
        while self.why is None and not self.over.wait(EVERY_S):
            self.why = self._passed(time.monotonic() - began)
        if self.why is not None:
            self.end()

    def _passed(self, seconds: float) -> str | None:
        memory, cpu = usage_of(self.pid)
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
