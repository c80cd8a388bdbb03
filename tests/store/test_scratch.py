"""Temporary files of a process that was killed go with the next one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from convbench.store.scratch import scratch_path

HOLDS = """
import duckdb, time
from convbench.store.limits import MemoryLimit, allow_spilling
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
assert allow_spilling(connection, 1 << 30, MemoryLimit(0, 32))
connection.execute("create table t as select range r, md5(range::text) m from range(2000000)")
print("held", flush=True)
time.sleep(20)
"""


def test_what_a_killed_process_spilled_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        (held,) = tmp_path.iterdir()
        assert list(held.iterdir())
        other = held.with_name(held.name.replace("convbench-", "convbench-zz"))
        away = tmp_path / "elsewhere"
        for folder in (other, away):
            folder.mkdir()
        link = held.with_name(held.name[:-8] + "00000000")
        link.symlink_to(away)
        mine = scratch_path()
        assert held.exists()  # its process is there
        holder.kill()
        holder.wait()
        mine.mkdir()
        assert scratch_path() != mine
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [other.name, away.name, link.name, mine.name]
    )
