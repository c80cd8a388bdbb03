"""What a report is made of: sections with tables, notes and pictures. Renderers only lay it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Rank = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it was computed, in the unit that is shown."""

    estimate: float
    error: float | None = None
    """Its standard error."""
    interval: tuple[float, float] | None = None
    """Its 95% interval."""
    p: float | None = None
    """Two-sided p of no difference, adjusted as the table says; None for what is no difference."""
    n: int | None = None
    """Conversations, pairs or labels that it is over."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: text, and where it is a number with an error the error's text."""

    text: str
    error: str | None = None
    rank: Rank = 0
    """1 for the best of its column, 2 for the second best."""
    quiet: bool = False
    """Set for what stands beside our numbers: the paper's."""
    figure: Figure | None = field(default=None, compare=False)
    """The number behind the text, where it was estimated; cells are equal that print alike."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head; `short` where there is little room."""

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
    def ranked(self) -> bool:
        """Whether some cell is marked best."""
        return any(cell.rank for row in self.rows for cell in row)


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot in three forms, with the words that say what it shows."""

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
    """One conversation as it was had: hostile text, which writers escape."""

    title: str
    facts: str
    """What came of it, in a line."""
    turns: tuple[tuple[str, str], ...]
    """(who, what was said), in order; lines end where the speaker ended them."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Conversations about one question, beside each other."""

    title: str
    facts: tuple[str, ...]
    sides: tuple[Transcript, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A section: what is compared, its tables, pictures and conversations."""

    title: str
    facts: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()
    talks: tuple[SideBySide, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    parts: tuple[Part, ...]
    runs: tuple[str, ...] = ()
    """Folders of the runs that it is about."""
    alone: bool = False
    """Whether it is written as a document of its own in LaTeX, not as tables to paste."""
    columns: Literal["one", "two"] = "two"
    """How many columns of a page of two its LaTeX tables may be wide."""


def slug(text: str) -> str:
    """Return a file stem or label of letters, digits and dashes."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)
