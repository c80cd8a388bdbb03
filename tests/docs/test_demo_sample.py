"""README and quickstart show what `convbench demo` prints, but for its figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rollout.cli import convbench

ROOT = Path(__file__).resolve().parents[2]
HEAD = "pocket · thinking · reasoning, n = 3"
WORD = re.compile(r"[A-Za-z−][A-Za-z−:;()'`/.-]*|%")
NARROW = {"Think", "−Base"}
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
    assert {"Scales:", "Unread", "Base:"} <= shown
    assert shown - words(done.out) - NARROW == set()


def test_the_readme_shows_a_part_of_the_quickstarts() -> None:
    whole = sample(ROOT / "docs" / "quickstart.md")
    for part in sample(ROOT / "README.md").strip().split("\n\n"):
        assert part in whole
