"""A list that stands right under a paragraph is swallowed by it: every item of every page's source
is one of the page that is built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

markdown = pytest.importorskip("markdown", reason="pip install convbench[docs]")

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXTENSIONS = ["admonition", "pymdownx.details", "pymdownx.superfences", "tables"]
FENCED = re.compile(r"^ *```.*?^ *```", re.M | re.S)
ITEM = re.compile(r"^ *(?:[-*+]|\d+\.) ", re.M)


def swallowed(text: str) -> int:
    """Return how many items of a text are none once it is built."""
    built = markdown.markdown(text, extensions=EXTENSIONS)
    return len(ITEM.findall(FENCED.sub("", text))) - len(re.findall("<li>", built))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_no_item_of_a_list_is_swallowed(page: Path) -> None:
    assert swallowed(page.read_text()) == 0


@pytest.mark.parametrize(("text", "lost"), [
    ("A line:\n- one\n- two\n", 2), ("A line:\n\n- one\n- two\n", 0),
    ("A line:\n1. one\n", 1), ("```\n- no item\n```\n\n- one\n", 0),
])  # fmt: skip
def test_a_list_needs_an_empty_line_before_it(text: str, lost: int) -> None:
    assert swallowed(text) == lost
