"""Two pages sum up what was measured; the lab's notebooks keep it, and who names one finds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "docs/lab"
NAMED = re.compile(r"\bdocs/[\w/.-]+\.md\b")
SOURCES = ("convbench/**/*.py", "trainers/**/*.py", "specs/**/*.yaml", "tests/**/*.py", "Makefile")


@pytest.mark.parametrize("name", ["results", "performance"])
def test_a_summary_stays_short(name: str) -> None:
    text = (ROOT / f"docs/{name}.md").read_text().replace("|", " ")
    assert len(text.split()) <= 900


def test_the_index_lists_every_notebook_newest_first() -> None:
    rows = re.findall(r"^\| (\S+) \| \[.+?\]\((\S+?)\)", (LAB / "index.md").read_text(), re.M)
    assert {name for _, name in rows} == {path.name for path in LAB.glob("*.md")} - {"index.md"}
    dates = [date for date, _ in rows]
    assert dates == sorted(dates, reverse=True)
    assert all(name.startswith(date) for date, name in rows if name[0].isdigit())


def test_the_navigation_has_every_notebook() -> None:
    listed = re.findall(r"lab/(\S+\.md)", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(path.name for path in LAB.glob("*.md"))


@pytest.mark.parametrize("path", sorted(LAB.glob("2*.md")), ids=lambda path: path.stem)
def test_a_notebook_begins_with_its_question_and_answer(path: Path) -> None:
    title, opening = path.read_text().split("\n\n")[:2]
    assert re.fullmatch("# .+", title)
    assert re.fullmatch(r"Asked: .+\? .+\.", opening.replace("\n", " "))


def test_every_page_that_code_names_exists() -> None:
    paths = [path for form in SOURCES for path in ROOT.glob(form)]
    naming = [(path, name) for path in paths for name in NAMED.findall(path.read_text())]
    assert len(naming) >= 20
    assert not [(path, name) for path, name in naming if not (ROOT / name).exists()]
