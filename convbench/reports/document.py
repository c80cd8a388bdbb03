"""The contents of a report: parts with tables, notes and pictures. Writers only lay them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from convbench.reports.citations import Citations

Rank = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number at full precision, in the unit that is shown."""

    estimate: float
    error: float | None = None
    """Its standard error."""
    interval: tuple[float, float] | None = None
    """Its 95% interval."""
    p: float | None = None
    """Two-sided p of no difference, adjusted as the table says; None if it is not a difference."""
    n: int | None = None
    """Number of conversations, pairs or labels it is computed from."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table: its text, and the text of its standard error if it has one."""

    text: str
    error: str | None = None
    rank: Rank = 0
    """1 for the best of its column, 2 for the second best, else 0."""
    quiet: bool = False
    """Whether it is a published number shown next to ours."""
    figure: Figure | None = field(default=None, compare=False)
    """The number behind the text, if it was estimated. Not compared: cells with equal text and
    marks are equal."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head, and a short form for narrow tables."""

    head: str
    short: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption and footnotes."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    label: str = ""
    """Name for LaTeX references."""

    @property
    def has_ranks(self) -> bool:
        """Return True if a cell is marked best or second best."""
        return any(cell.rank for row in self.rows for cell in row)


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot as SVG, PNG and PDF, with its caption."""

    name: str
    """File stem."""
    caption: str
    svg: str
    png: bytes
    pdf: bytes
    size: tuple[float, float]
    """Width and height on paper, inches."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """One conversation, as recorded. Its text is untrusted: writers escape it."""

    title: str
    facts: str
    """Its outcome, in one line."""
    turns: tuple[tuple[str, str], ...]
    """(speaker, text) in order, with the speaker's line breaks."""
    justifications: tuple[tuple[str, str], ...] = ()
    """(judge, metric and score; the judge's words) in order."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Conversations about one question, side by side."""

    title: str
    facts: tuple[str, ...]
    sides: tuple[Transcript, ...]
    tables: tuple[Table, ...] = ()
    """What they are compared by, below them."""


@dataclass(frozen=True, slots=True)
class ReportPart:
    """A part of a report: what is compared, its tables, pictures and conversations."""

    title: str
    facts: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()
    talks: tuple[SideBySide, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A report."""

    title: str
    parts: tuple[ReportPart, ...]
    runs: tuple[str, ...] = ()
    """Folders of the runs it covers."""
    is_standalone: bool = False
    """Whether its LaTeX is a complete document, not tables to paste into one."""
    columns: Literal["one", "two"] = "two"
    """Width of its LaTeX tables, in columns of a two-column page."""
    citations: Citations | None = None
    """What to cite for its results, the last section of its Markdown and HTML."""


def slug(text: str) -> str:
    """Return the text as a file stem or label: lower-case ASCII letters and digits, with one dash
    for each run of other characters.

    It has no dash at either end, and is empty for a text without ASCII letters and digits.
    """
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)
