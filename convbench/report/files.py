"""A report as text, as JSON data, and as files: its pages in each format, and its pictures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from convbench.report.document import Cell, Document, Figure, Picture, Table
from convbench.report.html import html
from convbench.report.latex import latex
from convbench.report.markdown import markdown
from convbench.store.jsonl import disk_error, write_file

FIGURE = "figure"
"""Key of a cell's `Figure`: the number with its error, interval, p and n."""


def as_data(made: Document, files: tuple[str, ...] = ()) -> Any:
    """Return a report's tables as JSON data: each cell as printed, with the figure behind it."""
    return {
        "title": made.title,
        "runs": list(made.runs),
        "parts": [
            {
                "title": part.title,
                "facts": list(part.facts),
                "tables": [_table(table) for table in part.tables],
                "notes": list(part.notes),
            }
            for part in made.parts
        ],
        "files": list(files),
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "label": table.label,
        "caption": table.caption,
        "columns": [column.head for column in table.columns],
        "rows": [[_cell(cell) for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    printed = {"text": cell.text, "error": cell.error, "rank": cell.rank}
    found = cell.figure or _count(cell.text)
    return {**printed, FIGURE: None if found is None else asdict(found)}


def _count(text: str) -> Figure | None:
    """Return the figure of a text that is a whole number, else None."""
    return Figure(int(text)) if text.isascii() and text.isdecimal() else None


def as_json(made: Document) -> str:
    """Return the tables as JSON text, the same as the result of `report --json`."""
    return json.dumps(as_data(made), ensure_ascii=False, indent=1) + "\n"


def as_csv(made: Document) -> str:
    """Return CSV with a line a cell: part, table, row (its first cell), column, value, error."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("part", "table", "row", "column", "value", "error"))
    for part in made.parts:
        for table in part.tables:
            heads = [column.head for column in table.columns]
            for row in table.rows:
                for head, cell in list(zip(heads, row, strict=True))[1:]:
                    place = (part.title, table.label or table.caption, row[0].text, head)
                    writer.writerow((*place, cell.text, cell.error or ""))
    return text.getvalue()


WRITERS = {
    "markdown": (markdown, "md"),
    "latex": (latex, "tex"),
    "html": (html, "html"),
    "json": (as_json, "json"),
    "csv": (as_csv, "csv"),
}
"""Writer and file ending by text format."""


def text(made: Document, form: str) -> str:
    """Return the report as text in a format: markdown, latex, html, json or csv."""
    return WRITERS[form][0](made)


def write(
    made: Document,
    folder: Path,
    forms: Collection[str],
    *,
    name: str = "report",
    named: bool = False,
) -> list[Path]:
    """Write the report in these formats, and its pictures; return the paths. `named` means that the
    user chose the folder: existing files keep their links, mode and owner.

    Raises RunError if the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from None
    files = {f"{name}.{WRITERS[form][1]}": text(made, form).encode() for form in sorted(forms)}
    for file, data in files.items():
        write_file(folder / file, data, named=named)
    drawn = [picture for part in made.parts for picture in part.pictures]
    return [*(folder / file for file in files), *write_pictures(drawn, folder, named=named)]


def write_pictures(pictures: Sequence[Picture], folder: Path, *, named: bool = False) -> list[Path]:
    """Write each picture as SVG, PDF and PNG; return the paths."""
    out = []
    for one in pictures:
        for ending, data in (("svg", one.svg.encode()), ("pdf", one.pdf), ("png", one.png)):
            out.append(folder / f"{one.name}.{ending}")
            write_file(out[-1], data, named=named)
    return out
