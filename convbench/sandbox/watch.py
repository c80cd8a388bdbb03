"""Watch a tree of processes: its usage, its last output, and its end if it uses too much.

This runs in a thread of ours, unlike `convbench.util.guard`, which is a program by itself.
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

from convbench.util.guard import began_at, is_alive, iter_descendants
from convbench.util.printable import make_printable

EVERY_S = 0.1
"""Seconds between two checks; meanwhile the kernel bounds the memory of each process."""
END_S = 5.0
"""Seconds for a guard to end all its descendants; a tenth is common."""
POLL_S = 0.02
REAP_S = 10.0


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """Limits of a tree of processes."""

    memory_bytes: int
    """Private memory of all processes together, without shared files in memory."""
    cpu_seconds: float = float("inf")
    """CPU seconds of all processes together, including reaped ones."""
    seconds: float = float("inf")
    """Clock seconds."""


def usage_of(pid: int) -> tuple[int, float]:
    """Return (private memory in bytes, CPU seconds) of a process and its descendants together.

    CPU seconds include those of children that have ended. Processes that are gone count nothing.
    """
    memory, ticks = 0, 0
    for each in (pid, *iter_descendants(pid)):
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{each}/status").read_text()
            memory += int(status.partition("RssAnon:")[2].split()[0]) << 10
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return memory, ticks / os.sysconf("SC_CLK_TCK")


class OutputTail:
    """Reads a named pipe and keeps the last bytes that a process wrote to it."""

    KEPT_BYTES = 4096
    AT_ONCE = 1 << 20
    """Most bytes read at once, so that an endless writer does not block us."""
    LINE = 300
    """Most characters of a line that are shown."""

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe, 0o600)
        self._fd: int | None = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._tail = b""

    def read_available(self) -> None:
        """Read what was written since the last call, up to 1 MiB, without waiting; its last 4096
        bytes are kept."""
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while self._fd is not None and taken < self.AT_ONCE:
                more = os.read(self._fd, 1 << 16)
                if not more:
                    return
                taken += len(more)
                self._tail = (self._tail + more)[-self.KEPT_BYTES :]

    def close(self) -> None:
        """Read what is left and close the pipe; what was kept can still be read.

        Further calls do nothing.
        """
        self.read_available()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @property
    def main_line(self) -> str:
        """Return the last line with `FATAL`, else the last line that is not blank; empty without
        any.

        It is printable and has at most 300 characters.
        """
        lines = [entry.strip() for entry in self._tail.decode("utf-8", "replace").splitlines()]
        fatal = [entry for entry in lines if "FATAL" in entry]
        return make_printable(next(reversed(fatal or [entry for entry in lines if entry]), ""))[
            : self.LINE
        ]


class ProcessWatch:
    """Thread that checks a guard and its descendants until one of `first` ends, a limit is exceeded
    or `over` is set; then it calls `noticed` and ends them all.

    The thread needs no event loop, and ends little more than END_S later.
    """

    def __init__(
        self, guard: int, most: UsageLimits, words: OutputTail, noticed: Callable[[], None]
    ) -> None:
        """`guard` is the id of a process that runs `convbench.util.guard`."""
        self.guard, self.most, self.words, self.noticed = guard, most, words, noticed
        self.first = [guard]
        self.why: str | None = None
        """The exceeded limit, in words; None if none was."""
        self.over = threading.Event()
        """Set to end all processes."""
        self.seen: dict[int, str] = {}
        """Descendants at the last check, process id → start time."""
        self.thread = threading.Thread(target=self._watch_loop, name="watch", daemon=True)
        self.thread.start()

    def _watch_loop(self) -> None:
        began = time.monotonic()
        while self.why is None and all(map(is_alive, self.first)) and not self.over.wait(EVERY_S):
            self.words.read_available()
            processes = {pid: began_at(pid) for pid in iter_descendants(self.guard)}
            if is_alive(self.guard):  # else they are no longer below it
                self.seen = processes
            self.why = self._exceeded_limit(time.monotonic() - began)
        self.words.close()
        self.noticed()
        self._end_all()

    def _end_all(self) -> None:
        """Tell the guard to end all processes; kill what is left if it does not, because it is
        stopped or was killed. The event loop that started the guard reaps it."""
        until = time.monotonic() + END_S
        if is_alive(self.guard):
            os.kill(self.guard, signal.SIGTERM)
        while is_alive(self.guard) and time.monotonic() < until:
            time.sleep(POLL_S)
        left = {pid for pid, at in self.seen.items() if began_at(pid) == at}
        if is_alive(self.guard):
            left |= {*iter_descendants(self.guard)}
            os.kill(self.guard, signal.SIGKILL)
        if left:
            kill_processes([*left])

    def _exceeded_limit(self, seconds: float) -> str | None:
        memory, cpu = usage_of(self.guard)
        if memory > self.most.memory_bytes:
            return f"more than {self.most.memory_bytes >> 20} MiB of memory"
        if cpu > self.most.cpu_seconds:
            return f"more than {self.most.cpu_seconds:.0f} s of CPU"
        if seconds > self.most.seconds:
            return f"more than {self.most.seconds:.0f} s"
        return None


def kill_processes(pids: list[int]) -> None:
    """Kill the processes with these ids, those that are gone or not ours excepted, and return at
    once.

    A thread reaps those that became our children, as happens in process 1 of a container.
    """
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    threading.Thread(target=_reap_processes, args=(pids,), daemon=True).start()


def _reap_processes(pids: list[int]) -> None:
    until = time.monotonic() + REAP_S
    while pids and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ChildProcessError):  # not ours, or not yet
                os.waitpid(pid, os.WNOHANG)
        pids = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        time.sleep(EVERY_S)
