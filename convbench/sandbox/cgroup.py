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
    """Return the nearest group above this process in which we may create groups, else None."""
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
    """Return the nearest group, from `own` up to `root`, that is writable and lets its children
    limit memory and processes, else None."""
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
    """Return a new group limited to `memory` bytes and `processes` processes and threads.

    Returns None if none can be created."""
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
    """Return a command that enters the group before it runs; it fails if it cannot enter."""
    enter = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
    return [*command] if group is None else ["/bin/sh", "-c", enter, str(group), *command]


def end_group(group: Path | None) -> None:
    """Kill all processes of a group; a thread removes the group once it is empty."""
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
