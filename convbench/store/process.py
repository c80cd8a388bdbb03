"""Which process wrote something, so that another of the same machine can tell whether it lives."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import Field

from convbench.schema.noun import Noun

Short = Field(max_length=200)


class Process(Noun):
    """A process by its number, its start and its machine."""

    host: str = Short
    """Name of the machine, for people."""
    machine: str = Short
    """Mark of the running system and its space of processes; empty where it tells none."""
    pid: int = Field(ge=1, le=1 << 40)
    """Its number there."""
    started: str = Short
    """When it began, in the system's own count."""


def boot_mark() -> str:
    """Return the mark of this machine's system and space of processes; empty where unknown."""
    with suppress(OSError):
        mark = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{mark}:{os.stat('/proc/self/ns/pid').st_ino}"
    return ""


def start_time(pid: int) -> str | None:
    """Return when a process began; None where there is none, or it has ended and waits for its
    parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


@cache
def _machine() -> tuple[str, str]:
    return socket.gethostname()[:200], boot_mark()


def this_process() -> Process:
    """Return this process."""
    host, machine = _machine()
    pid = os.getpid()
    return Process(host=host, machine=machine, pid=pid, started=start_time(pid) or "")


def ended(process: Process) -> bool:
    """Return whether a process is known to be no more; one of another machine never is."""
    machine = _machine()[1]
    here = bool(machine) and machine == process.machine
    return here and start_time(process.pid) != process.started
