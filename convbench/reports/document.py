"""What a report consists of: parts with tables of numbers and pictures. Writers only format them.

A cell is an `Estimate`, a `Difference`, a number or a text; text is made of it when it is written,
so that JSON, CSV and data frames have every digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.stats.estimates import Estimate

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference to a baseline, with its p adjusted by Holm's method over the policies
    that are compared with one baseline."""

    estimate: Estimate
    adjusted: float | None = None


Cell = Estimate | Difference | float | int | str | None
Shown = tuple[str, str, int]
"""A cell as written: its text, what stands behind or below it, and its rank."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its name in JSON, CSV and data frames, and its head, a short one in
    narrow tables; `text` columns stand left, of `best` ones the two largest numbers are marked."""

    key: str
    head: str
    short: str = ""
    digits: int = 0
    text: bool = False
    best: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table; whether its numbers are those that a paper prints."""

    cells: tuple[Cell, ...]
    printed: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its notes; `name` stands for it in JSON and in the Python API."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows with full precision; see `cell_values` for what a number brings along."""
        printed = any(row.printed for row in self.rows)
        return [
            {
                (f"{column.key}_{name}" if name else column.key): value
                for column, cell in zip(self.columns, row.cells, strict=True)
                for name, value in cell_values(cell).items()
            }
            | ({"printed": row.printed} if printed else {})
            for row in self.rows
        ]

    def ranks(self) -> list[list[int]]:
        """Return a number for each cell: 1 for the best of its column as shown, 2 for the second
        best, else 0. Equal numbers share a rank; printed rows are ranked among themselves."""
        ranks = [[0] * len(self.columns) for _ in self.rows]
        for place, column in enumerate(self.columns):
            for printed in (False, True) if column.best else ():
                values = {
                    number: round(value, column.digits)
                    for number, row in enumerate(self.rows)
                    if row.printed is printed and (value := mean_of(row.cells[place])) is not None
                }
                best = sorted(set(values.values()), reverse=True)
                for number, value in values.items() if len(best) > 1 else ():
                    ranks[number][place] = {best[0]: 1, best[1]: 2}.get(value, 0)
        return ranks

    def shown(self) -> Iterator[tuple[Row, list[Shown]]]:
        """Yield each row with its cells as they are written."""
        for row, ranks in zip(self.rows, self.ranks(), strict=True):
            cells = zip(row.cells, self.columns, ranks, strict=True)
            yield row, [(*cell_text(cell, column), rank) for cell, column, rank in cells]


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot: its file stem, its caption, and its contents as svg, pdf and png."""

    name: str
    caption: str
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class Part:
    """A part of a report: one setting, or what several have together; `answers` are lines on what
    came out."""

    title: str
    answers: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Document:
    """A report on the runs in these folders; `sources` say which spec follows which paper."""

    title: str
    parts: tuple[Part, ...]
    runs: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    bibtex: str = ""

    def frames(self) -> dict[str, DataFrame]:
        """Return the tables of all parts by name as data frames; the first column is the part."""
        import pandas as pd

        found: dict[str, list[dict[str, Any]]] = {}
        for part in self.parts:
            for table in part.tables:
                rows = ({"part": part.title} | record for record in table.records())
                found.setdefault(table.name, []).extend(rows)
        return {name: pd.DataFrame(rows) for name, rows in found.items()}


def mean_of(cell: Cell) -> float | None:
    """Return the number of a cell; None for a text or nothing."""
    value = cell_values(cell)[""]
    return None if isinstance(value, str) or value is None else float(value)


def cell_values(cell: Cell) -> dict[str, Any]:
    """Return the values behind a cell by name, the number itself under the empty name."""
    if isinstance(cell, Difference):
        return cell_values(cell.estimate) | {"p": cell.estimate.p, "holm": cell.adjusted}
    if not isinstance(cell, Estimate):
        return {"": cell}
    low, high = cell.interval or (None, None)
    values = {"": cell.mean, "error": cell.error, "low": low, "high": high}
    return values | {"n": cell.n, "groups": cell.groups}


def cell_text(cell: Cell, column: Column) -> tuple[str, str]:
    """Return what is shown of a cell, and what stands behind or below it: `0.75`, `±0.25`, or of a
    difference stars for its adjusted p and its interval: `+.394***`, `[+.302, +.486]`."""
    digits = column.digits
    if isinstance(cell, Difference):
        p, span = cell.adjusted, cell.estimate.interval or ()
        stars = "" if p is None else "*" * ((p < 0.05) + (p < 0.01) + (p < 0.001))
        inside = ", ".join(_signed(end, digits) for end in span)
        return _signed(cell.estimate.mean, digits) + stars, f"[{inside}]" if inside else ""
    if isinstance(cell, Estimate):
        error = "" if cell.error is None else f"±{cell.error:.{digits}f}"
        return f"{cell.mean:.{digits}f}", error
    if isinstance(cell, float):
        return f"{cell:.{digits}f}", ""
    return "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else cell, ""


def _signed(value: float, digits: int) -> str:
    # With two digits or more without a zero before the point: +.394.
    text = f"{value:+.{digits}f}"
    return text[0] + text[2:] if digits > 1 and text[1:3] == "0." else text


def slug(text: str) -> str:
    """Return a text as a file stem: lower-case letters and digits with single dashes."""
    known = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower())
    return "-".join(known.split())
