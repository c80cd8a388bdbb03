"""A control group around a sandbox, where the system lets us make one (version 2, delegated).

It bounds what no limit of a single process does: the kernel's own memory that code brings about
(names looked up, queues filled), and the processes of a browser all together. Where there is none,
what is said in `wall` and `chromium` still holds.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

END_S = 10.0
_numbers = itertools.count()


@cache
def place() -> Path | None:
    """Return the nearest group above this process in which we may make others; None without."""
    with contextlib.suppress(OSError):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        roots = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line[3:] for line in lines if line.startswith("0::"))
        found = nearest(roots[0], own) if roots else None
        return found if found and _enters(found) else None
    return None


def _enters(within: Path) -> bool:
    """Whether a process of ours gets into a group made there."""
    group = make(64 << 20, 16, within)
    try:
        enter = inside(group, ["true"])
        return group is not None and subprocess.run(enter, timeout=END_S).returncode == 0  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
    finally:
        end(group)


def nearest(root: Path, own: str) -> Path | None:
    """Return the nearest group, from `own` up to `root`, that gives those made in it limits of
    memory and processes, and in which we may make some."""
    first = root / own.strip("/")
    for folder in (first, *first.parents):
        with contextlib.suppress(OSError):
            given = (folder / "cgroup.subtree_control").read_text().split()
            mine = all(os.access(at, os.W_OK) for at in (folder, folder / "cgroup.procs"))
            if {"memory", "pids"} <= set(given) and mine:
                return folder
        if folder == root:
            break
    return None


def make(memory: int, processes: int, within: Path | None = None) -> Path | None:
    """Return a new group of so many bytes and so many processes and threads; None without."""
    within = within or place()
    if within is None:
        return None
    group = within / f"convbench-{os.getpid()}-{next(_numbers)}"
    try:
        group.mkdir()
        (group / "memory.max").write_text(str(memory))
        (group / "pids.max").write_text(str(processes))
        with contextlib.suppress(OSError):  # not on every kernel
            (group / "memory.oom.group").write_text("1")
            (group / "memory.swap.max").write_text("0")
    except OSError:
        end(group)
        return None
    return group


def inside(group: Path | None, command: Sequence[str]) -> list[str]:
    """Return a command that enters the group first; not entering it is an end."""
    enter = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
    return [*command] if group is None else ["/bin/sh", "-c", enter, str(group), *command]


def end(group: Path | None) -> None:
    """Kill what is left in a group; a thread removes it once it is empty."""
    if group is not None:
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        threading.Thread(target=_remove, args=(group,), daemon=True).start()


def _remove(group: Path) -> None:
    until = time.monotonic() + END_S
    while group.is_dir() and time.monotonic() < until:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)
