"""README and quickstart show what `convbench demo` prints, but for its figures."""

from __future__ import annotations

import re
import shutil
import subprocess
from os import defpath
from pathlib import Path

import pytest

from tests.helpers.cli import convbench

ROOT = Path(__file__).resolve().parents[2]
HEAD = "pocket · thinking · reasoning, n = 3"
WORD = re.compile(r"[A-Za-z−][A-Za-z−:;()'`/.-]*|%")
NARROW = {"Think"}
"""Heads of columns as a terminal of 80 columns has them."""


def words(text: str) -> set[str]:
    """Return the whole words of a sample: no figures, no marks, no ids, and nothing that a narrow
    head of a column shortens."""
    text = re.sub(r"Best [^\n]*\n|(?<=show )\S+|[<+±*\[\]]", " ", text)
    return {word for word in WORD.findall(text) if word[-1] != "."}


def sample(page: Path) -> str:
    """Return what a page shows of the demo."""
    text = page.read_text()
    return text[text.index(HEAD) :].partition("```")[0]


@pytest.mark.exhaustive
def test_the_pages_show_what_the_demo_prints(tmp_path: Path) -> None:
    done = convbench(tmp_path, "demo", "--tasks", "60")
    shown = words(sample(ROOT / "docs" / "quickstart.md"))
    assert {"Scales:", "Unread", "Differences"} <= shown
    assert shown - words(done.out) - NARROW == set()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_demo_ends_with_how_its_lines_are_typed(tmp_path: Path) -> None:
    (tmp_path / "convbench").write_text("#!/bin/sh\necho demo of $1\n")
    (tmp_path / "convbench").chmod(0o755)
    (tmp_path / "installed").touch()
    make = ("make", "-s", "-C", str(ROOT), "demo", f"BIN={tmp_path}", f"STAMP={tmp_path}/installed")
    for path, more in ((defpath, 1), (f"{tmp_path}:{defpath}", 0)):
        done = subprocess.run(
            make, env={"PATH": path}, capture_output=True, text=True, check=True, timeout=60
        )
        lines = done.stdout.splitlines()
        assert lines[0] == "demo of demo"
        assert [line.partition(": . ")[2] for line in lines[1:]] == [f"{tmp_path}/activate"] * more


def test_the_readme_shows_a_part_of_the_quickstarts() -> None:
    whole = sample(ROOT / "docs" / "quickstart.md")
    for part in sample(ROOT / "README.md").strip().split("\n\n"):
        assert part in whole
