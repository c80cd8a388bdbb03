"""Directories that cannot be written and disks that are full."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.cli import convbench, records, said

BUILD = ["build", "demo", "--model", "scripted:policy", "--quiet"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where we may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root; type: sudo make test")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def test_a_full_disk_is_said_and_a_resume_ends_the_run(tmp_path: Path, disk: Path) -> None:
    full = convbench(tmp_path, *BUILD, "--run", "disk/run")
    assert full.code == 1
    assert "Traceback" not in full.err
    said_so = [
        line for line in full.err.splitlines() if "disk is full" in line or "No space" in line
    ]
    assert len(said_so) == 1, full.err
    assert "Resume: convbench build --run disk/run" in full.err
    kept = said(disk / "run")
    assert 0 < len(kept) < 120
    name = records(disk / "run" / "conversations.jsonl")[0]["conversation_id"]
    shown = convbench(tmp_path, "show", name, "--run", "disk/run")
    assert shown.code == 0, shown.err
    remount(disk, "size=8m")
    ended = convbench(tmp_path, "build", "--run", "disk/run", "--quiet")
    assert ended.code == 0, ended.err
    finished = said(disk / "run")
    assert len(finished) == 120
    assert kept.items() <= finished.items()


def test_a_full_disk_at_the_start_leaves_no_run(tmp_path: Path, disk: Path) -> None:
    (disk / "filler").write_bytes(b"x" * 60_000)
    full = convbench(tmp_path, *BUILD, "--run", "disk/run")
    assert "disk is full" in full.error
    assert not (disk / "run" / "run.json").exists()
    (disk / "filler").unlink()
    again = convbench(tmp_path, *BUILD, "--tasks", "2", "--run", "disk/run")
    assert again.code == 0, again.err


def test_a_read_only_disk_is_said(tmp_path: Path, disk: Path) -> None:
    remount(disk, "ro")
    refused = convbench(tmp_path, *BUILD, "--run", "disk/run")
    assert "disk/run" in refused.error
    assert "Read-only file system" in refused.error


def test_a_run_on_a_disk_that_became_read_only(tmp_path: Path, disk: Path) -> None:
    made = convbench(tmp_path, *BUILD, "--tasks", "2", "--run", "disk/run")
    assert made.code == 0, made.err
    remount(disk, "ro")
    assert "disk/run" in convbench(tmp_path, "build", "--run", "disk/run").error


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_file_in_the_way_is_said(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    assert "file" in convbench(tmp_path, *BUILD, "--run", place).error
    assert (tmp_path / "file").read_text() == "mine"


def test_files_that_may_not_grow_stop_the_run_and_a_resume_ends_it(tmp_path: Path) -> None:
    """A limit on file size fails writes as a full disk does, without root."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    stopped = convbench(tmp_path, *BUILD, "--run", "run", preexec_fn=limit)
    assert stopped.code == 1
    assert "Traceback" not in stopped.err
    assert "Resume: convbench build --run run" in stopped.err
    kept = said(tmp_path / "run")
    assert 0 < len(kept) < 120
    ended = convbench(tmp_path, "build", "--run", "run", "--quiet")
    assert ended.code == 0, ended.err
    assert len(said(tmp_path / "run")) == 120
    assert kept.items() <= said(tmp_path / "run").items()
