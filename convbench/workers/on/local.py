"""Workers as processes of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from convbench.guard import die_with_parent
from convbench.regular import open_to_append
from convbench.store.jsonl import disk_error
from convbench.workers.on import Crew, Place

AGAIN = 2
"""Times its workers that one is started in the place of one that was killed."""
GRACE_S = 20.0
"""Seconds that workers get to end."""


def usual(place: Place) -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def command(crew: Crew) -> list[str]:
    """Return the command of one worker."""
    return [sys.executable, "-m", "convbench", "work", *crew.words]


def written(crew: Crew) -> str:
    """Return the command, and how often it is started."""
    return f"{shlex.join(['convbench', 'work', *crew.words])}   # {crew.count} processes here\n"


class Processes:
    """Processes of this machine; they end with this one."""

    def __init__(self, crew: Crew) -> None:
        self.told: Sequence[str] = ()
        self._command = command(crew)
        self._folder = crew.logs()
        self._spare = AGAIN * crew.count
        self._number = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(self._folder, error) from None
        self._there = [self._one() for _ in range(crew.count)]

    def alive(self) -> int:
        """Return how many run. One that was killed is started anew: the rest of its shard may be
        all that is left."""
        for place, one in enumerate(self._there):
            code = one.poll()
            if code is not None and code < 0 and code != -signal.SIGTERM and self._spare > 0:
                self._spare -= 1
                self._there[place] = self._one()
        codes = [one.poll() for one in self._there]
        if bad := sum(code not in (None, 0) for code in codes):
            self.told = (f"{bad} of {len(codes)} workers ended with an error; see {self._folder}",)
        return sum(code is None for code in codes)

    def stop(self) -> list[str]:
        """Have them give back what they hold, and end."""
        for one in self._there:
            with suppress(ProcessLookupError):
                one.send_signal(signal.SIGTERM)
        for one in self._there:
            with suppress(subprocess.TimeoutExpired):
                one.wait(GRACE_S)
        return []

    def close(self) -> None:
        """Kill what is left."""
        for one in self._there:
            with suppress(ProcessLookupError):
                one.kill()
            one.wait()

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [one.pid for one in self._there]

    def _one(self) -> subprocess.Popen[bytes]:
        self._number += 1
        log = Path(self._folder) / f"{os.getpid()}-{self._number}.log"
        with open_to_append(log) as file:
            return subprocess.Popen(  # noqa: S603 - our own command
                self._command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip


def start(crew: Crew) -> Processes:
    """Start the workers."""
    return Processes(crew)
