"""Locks of builds that were killed: removed or told, never waited for in silence."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from convbench.learn import launch


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    found = tmp_path / "torch_extensions" / "py_cpu" / "op" / "lock"
    found.parent.mkdir(parents=True)
    found.touch()
    return found


def notes(tmp_path: Path) -> list[str]:
    found: list[str] = []
    launch.remove_stale_locks(found.append, {"XDG_CACHE_HOME": str(tmp_path)})
    return found


def aged(lock: Path) -> None:
    then = time.time() - launch.OLD_S - 60
    os.utime(lock, (then, then))


def test_one_that_a_process_holds_open_is_left_alone(tmp_path: Path, lock: Path) -> None:
    with lock.open():
        aged(lock)
        assert notes(tmp_path) == []
        assert lock.exists()


def test_a_new_one_that_nobody_here_holds_is_told(tmp_path: Path, lock: Path) -> None:
    (note,) = notes(tmp_path)
    assert note.startswith(f"{lock}: no process here holds this lock, and training waits")
    assert lock.exists()


def test_an_old_one_that_nobody_holds_is_removed(tmp_path: Path, lock: Path) -> None:
    aged(lock)
    (note,) = notes(tmp_path)
    assert note.startswith(f"{lock}: removed")
    assert notes(tmp_path) == []


def test_the_folder_that_the_environment_names_is_looked_at(tmp_path: Path) -> None:
    lock = tmp_path / "mine" / "op" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    aged(lock)
    found: list[str] = []
    launch.remove_stale_locks(found.append, {"TORCH_EXTENSIONS_DIR": str(tmp_path / "mine")})
    assert not lock.exists()
    assert len(found) == 1
