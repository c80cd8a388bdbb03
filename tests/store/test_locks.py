"""Locks of folders are given back when what they were held for is over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.store.locks import folder_lock


def test_a_process_that_was_just_being_started_holds_no_lock_on(tmp_path: Path) -> None:
    """Such a one has all descriptors until its program begins; here it keeps one of them."""
    with folder_lock(tmp_path, "writing") as held:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE,
                                 pass_fds=(held,))  # fmt: skip
        with pytest.raises(RunError, match=r"another process is writing \("):
            folder_lock(tmp_path, "writing").__enter__()
    with child, folder_lock(tmp_path, "writing"):
        assert child.poll() is None
        child.kill()


@pytest.mark.parametrize(
    "typed", ["/usr/bin/convbench", "/lib/convbench/__main__.py"], ids=["program", "module"]
)
def test_who_is_refused_is_told_the_command_that_holds_it(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [typed, "judge", "--run", "runs/arc"])
    with (
        folder_lock(tmp_path, "judging"),
        pytest.raises(RunError, match=r"is judging \(convbench judge, process \d+\)"),
    ):
        folder_lock(tmp_path, "judging").__enter__()
