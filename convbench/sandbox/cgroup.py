"""Put a sandbox into a control group (version 2, delegated), where the system allows it.

It bounds what no limit of a single process does: kernel memory that code causes (names looked up,
queues filled), and all processes of a browser together. Without one, the limits of `wall` and
`chromium` still hold.
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
def parent_group() -> Path | None:
    """Return the nearest control group, from this process's own upwards, in which we may create
    groups.

    It was tried once whether a process can enter a group there. Return None if there is none or no
    version 2 of control groups; the answer is kept for the process.
    """
    with contextlib.suppress(OSError):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        roots = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line[3:] for line in lines if line.startswith("0::"))
        group = nearest_group(roots[0], own) if roots else None
        return group if group and _can_enter(group) else None
    return None


def _can_enter(within: Path) -> bool:
    """Return True if a process of ours can enter a group created within this one."""
    group = make_group(64 << 20, 16, within)
    try:
        enter = enter_command(group, ["true"])
        return group is not None and subprocess.run(enter, timeout=END_S).returncode == 0  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
    finally:
        end_group(group)


def nearest_group(root: Path, own: str) -> Path | None:
    """Return the nearest folder, from `own` (below `root`) up to `root`, that may hold our groups;
    else None.

    It is writable, and lets its children limit memory and processes.
    """
    first = root / own.strip("/")
    for folder in (first, *first.parents):
        with contextlib.suppress(OSError):
            controllers = (folder / "cgroup.subtree_control").read_text().split()
            mine = all(os.access(at, os.W_OK) for at in (folder, folder / "cgroup.procs"))
            if {"memory", "pids"} <= set(controllers) and mine:
                return folder
        if folder == root:
            break
    return None


def make_group(memory: int, processes: int, within: Path | None = None) -> Path | None:
    """Return the folder of a new group limited to `memory` bytes and `processes` processes and
    threads.

    It lies in `within`, else in `parent_group()`. Return None if it cannot be created.
    """
    within = within or parent_group()
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
        end_group(group)
        return None
    return group


def enter_command(group: Path | None, command: Sequence[str]) -> list[str]:
    """Return a shell command that enters the group and then runs `command`; it fails if it cannot
    enter.

    Without a group it is `command` itself, as a list.
    """
    enter = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
    return [*command] if group is None else ["/bin/sh", "-c", enter, str(group), *command]


def end_group(group: Path | None) -> None:
    """Kill all processes of a group at once; a thread removes it once it is empty, for at most 10
    s.

    Without a group nothing is done, and errors are ignored.
    """
    if group is not None:
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        threading.Thread(target=_remove_group, args=(group,), daemon=True).start()


def _remove_group(group: Path) -> None:
    until = time.monotonic() + END_S
    while group.is_dir() and time.monotonic() < until:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)
