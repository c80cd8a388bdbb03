"""Identify processes, so that one can tell whether another of the same machine still runs."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import Field

from convbench.schema.base import FrozenModel

Short = Field(max_length=200)


class Process(FrozenModel):
    """Identity of a process: number, start and machine."""

    host: str = Short
    """Host name, for people."""
    machine: str = Short
    """Boot id and PID namespace of the system; empty if unknown."""
    pid: int = Field(ge=1, le=1 << 40)
    """Process id."""
    started: str = Short
    """Start time in clock ticks since boot, as /proc has it."""


def boot_mark() -> str:
    """Return boot id and number of the PID namespace of this system, joined by a colon; empty if
    unknown."""
    with suppress(OSError):
        mark = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{mark}:{os.stat('/proc/self/ns/pid').st_ino}"
    return ""


def start_time(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot, as digits; None if it does not
    exist.

    A zombie counts as ended and gives None.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


@cache
def _this_machine() -> tuple[str, str]:
    return socket.gethostname()[:200], boot_mark()


def this_process() -> Process:
    """Return host name, machine, process id and start time of this process; the start is empty if
    unknown."""
    host, machine = _this_machine()
    pid = os.getpid()
    return Process(host=host, machine=machine, pid=pid, started=start_time(pid) or "")


def has_ended(process: Process) -> bool:
    """Return True if a process of this machine has ended, a zombie included.

    Return False if it runs, is of another machine or boot, or the machine is unknown.
    """
    machine = _this_machine()[1]
    here = bool(machine) and machine == process.machine
    return here and start_time(process.pid) != process.started
