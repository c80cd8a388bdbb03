"""A process behind a wall, and its end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convbench.sandbox import cgroup

_CHILD = re.compile(rb'"child-pid": (\d+)')
ENDS_S = 10.0
"""Longest wait for bubblewrap to follow what it started."""


@dataclass(frozen=True, slots=True)
class Walled:
    """What was started: its stdin and stdout are ours."""

    process: subprocess.Popen[bytes]
    info: int | None = None
    """Where bubblewrap tells the number of the first process inside."""
    group: Path | None = None
    """The control group that it is in."""

    def end(self) -> None:
        """Kill it and leave nothing behind; the waiting is done by a thread, since taking down
        namespaces takes as long as many a test."""
        first = self._first()
        try:
            os.kill(first, signal.SIGKILL) if first else self.process.kill()
        except ProcessLookupError:
            pass
        finally:
            self._close()
            cgroup.end(self.group)
            threading.Thread(target=self._wait, args=(first,), daemon=True).start()

    def _first(self) -> int | None:
        """Return the number of the first process inside; None where there is none to know."""
        if self.info is None or not select.select([self.info], [], [], ENDS_S)[0]:
            return None
        found = _CHILD.search(os.read(self.info, 1 << 12))
        return int(found[1]) if found else None

    def _wait(self, first: int | None) -> None:
        """Wait for bubblewrap and, where it ends before what it started, for that too: it is
        ours then if we adopt orphans, as process 1 of a container does, and a zombie for good."""
        try:
            self.process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if first:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(first, 0)

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.info is not None:
            os.close(self.info)


def popen(
    command: Sequence[str], env: dict[str, str], fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own with pipes to its stdin and from its stdout."""
    return subprocess.Popen(  # noqa: S603 - our own command
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd="/",
        pass_fds=fds,
        start_new_session=True,
    )
