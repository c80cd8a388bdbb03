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
    if _git("rev-parse", "--is-shallow-repository") != ["false"]:
        pytest.skip("no git checkout with its whole history")
    known = _git("log", "--format=", "--name-only", "--no-renames", "--", *LISTED)
    assert sorted(LISTED) == LISTED == sorted({*known})


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split()
