"""Control groups around sandboxes: found where they can be made, entered, removed."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from convbench.sandbox import Limits, cgroup, run_calls


def tree(root: Path, given: dict[str, str]) -> None:
    for name, controllers in given.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "cgroup.subtree_control").write_text(controllers)
        (root / name / "cgroup.procs").write_text("")


def test_the_nearest_group_that_gives_limits(tmp_path: Path) -> None:
    tree(tmp_path, {"": "cpu memory pids", "user": "memory pids", "user/app": "cpu", "bare": ""})
    assert cgroup.nearest_group(tmp_path, "/user/app") == tmp_path / "user"
    assert cgroup.nearest_group(tmp_path, "/bare") == tmp_path
    assert cgroup.nearest_group(tmp_path, "/") == tmp_path
    tree(tmp_path, {"": "memory", "user": "cpu"})
    assert cgroup.nearest_group(tmp_path, "/user/app") is None
    assert cgroup.nearest_group(tmp_path, "/gone/before") is None


def test_without_a_place_there_is_no_group(tmp_path: Path) -> None:
    assert cgroup.make_group(1 << 20, 10, tmp_path / "nowhere") is None
    assert cgroup.enter_command(None, ["true"]) == ["true"]
    cgroup.end_group(None)


def test_a_command_that_cannot_enter_its_group_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    command = cgroup.enter_command(tmp_path / "gone", ["touch", str(mark)])
    assert subprocess.run(command, capture_output=True).returncode != 0
    assert not mark.exists()
    group = tmp_path / "group"
    group.mkdir()
    assert subprocess.run(cgroup.enter_command(group, ["touch", str(mark)])).returncode == 0
    assert mark.exists()
    assert int((group / "cgroup.procs").read_text()) > 0


def test_a_group_bounds_memory_and_processes_and_is_removed() -> None:
    within = cgroup.parent_group()
    if within is None:
        pytest.skip("no control groups to be made on this machine")
    assert run_calls(["def f(): return 42"], ["f()"], Limits())[0].value == 42
    group = cgroup.make_group(64 << 20, 16)
    assert group is not None
    eats = "python3 -c 'bytearray(200 << 20)'"
    assert subprocess.run(cgroup.enter_command(group, ["sh", "-c", eats])).returncode != 0
    forks = "for i in $(seq 30); do sleep 1 & done; wait"
    done = subprocess.run(cgroup.enter_command(group, ["sh", "-c", forks]), capture_output=True)
    assert b"fork" in done.stderr
    cgroup.end_group(group)
    until = time.monotonic() + 60
    while list(within.glob("convbench-*")) and time.monotonic() < until:
        time.sleep(0.1)
    assert not list(within.glob("convbench-*"))
