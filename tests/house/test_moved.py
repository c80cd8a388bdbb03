"""What was moved is gone from where it was: `moved.txt` lists those files, one a line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = (Path(__file__).parent / "moved.txt").read_text().split()


@pytest.mark.parametrize("name", LISTED)
def test_no_file_is_left_where_it_was(name: str) -> None:
    assert not (ROOT / name).exists(), f"{name}: moved, and still there"


def test_the_list_names_files_that_once_were() -> None:
    """Else a misspelt line would hold for ever."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no history to look at")
    known = subprocess.run(
        ["git", "log", "--format=", "--name-only", "--no-renames", "--", *LISTED],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    if not known:
        pytest.skip("a shallow clone: no file of the list is in its history")
    assert sorted(LISTED) == LISTED == sorted({*known})
