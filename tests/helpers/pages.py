"""Pages of the documentation, and the files that they write out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page writes out, by path: blocks whose first line is `# PATH`."""
    found = {}
    for _, block in BLOCK.findall(page.read_text()):
        named = re.match(r"# ([\w/.-]+\.(?:py|yaml))\n", block)
        if named:
            found[named[1]] = block
    return found


def write_files(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a page's files here; modules that are made of them are forgotten after the test."""
    for path, text in files_of(page).items():
        if path.endswith(".py"):  # put and taken away: undone, there is none
            monkeypatch.setitem(sys.modules, Path(path).stem, sys)
            monkeypatch.delitem(sys.modules, Path(path).stem)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
