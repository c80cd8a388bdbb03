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
from convbench.report.html import render_html
from convbench.report.latex import render_latex
from convbench.report.markdown import render_markdown
from convbench.store.jsonl import disk_error, write_file

FIGURE = "figure"
"""Key of a cell's `Figure`: the number with its error, interval, p and n."""


def as_data(document: Document, files: tuple[str, ...] = ()) -> Any:
    """Return a report's tables as JSON data: each cell as printed, with the figure behind it."""
    return {
        "title": document.title,
        "runs": list(document.runs),
        "parts": [
            {
                "title": part.title,
                "facts": list(part.facts),
                "tables": [_table_data(table) for table in part.tables],
                "notes": list(part.notes),
            }
            for part in document.parts
        ],
        "files": list(files),
    }


def _table_data(table: Table) -> dict[str, Any]:
    return {
        "label": table.label,
        "caption": table.caption,
        "columns": [column.head for column in table.columns],
        "rows": [[_cell_data(cell) for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


def _cell_data(cell: Cell) -> dict[str, Any]:
    printed = {"text": cell.text, "error": cell.error, "rank": cell.rank}
    figure = cell.figure or _count_figure(cell.text)
    return {**printed, FIGURE: None if figure is None else asdict(figure)}


def _count_figure(text: str) -> Figure | None:
    """Return the figure of a text that is a whole number, else None."""
    return Figure(int(text)) if text.isascii() and text.isdecimal() else None


def as_json(document: Document) -> str:
    """Return the tables as JSON text, the same as the result of `report --json`."""
    return json.dumps(as_data(document), ensure_ascii=False, indent=1) + "\n"


def as_csv(document: Document) -> str:
    """Return CSV with a line a cell: part, table, row (its first cell), column, value, error."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("part", "table", "row", "column", "value", "error"))
    for part in document.parts:
        for table in part.tables:
            heads = [column.head for column in table.columns]
            for row in table.rows:
                for head, cell in list(zip(heads, row, strict=True))[1:]:
                    address = (part.title, table.label or table.caption, row[0].text, head)
                    writer.writerow((*address, cell.text, cell.error or ""))
    return text.getvalue()


WRITERS = {
    "markdown": (render_markdown, "md"),
    "latex": (render_latex, "tex"),
    "html": (render_html, "html"),
    "json": (as_json, "json"),
    "csv": (as_csv, "csv"),
}
"""Writer and file ending by text format."""


def render_text(document: Document, form: str) -> str:
    """Return the report as text in a format: markdown, latex, html, json or csv."""
    return WRITERS[form][0](document)


def write_report(
    document: Document,
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
    files = {
        f"{name}.{WRITERS[form][1]}": render_text(document, form).encode() for form in sorted(forms)
    }
    for file, data in files.items():
        write_file(folder / file, data, named_by_user=named)
    drawn = [picture for part in document.parts for picture in part.pictures]
    return [*(folder / file for file in files), *write_pictures(drawn, folder, named=named)]


def write_pictures(pictures: Sequence[Picture], folder: Path, *, named: bool = False) -> list[Path]:
    """Write each picture as SVG, PDF and PNG; return the paths."""
    out = []
    for picture in pictures:
        for ending, data in (
            ("svg", picture.svg.encode()),
            ("pdf", picture.pdf),
            ("png", picture.png),
        ):
            out.append(folder / f"{picture.name}.{ending}")
            write_file(out[-1], data, named_by_user=named)
    return out
