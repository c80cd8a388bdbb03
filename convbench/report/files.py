"""A report as text, and as files: its pages in each format, and its pictures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from convbench.report.data import as_csv, as_json
from convbench.report.document import Document, Picture
from convbench.report.html import html
from convbench.report.latex import latex
from convbench.report.markdown import markdown
from convbench.store.jsonl import disk_error, write_file

WRITERS = {
    "markdown": (markdown, "md"), "latex": (latex, "tex"), "html": (html, "html"),
    "json": (as_json, "json"), "csv": (as_csv, "csv"),
}  # fmt: skip
"""Formats that are text, with the ending of their file."""


def text(made: Document, form: str) -> str:
    """Return the report as markdown, latex, html, json or csv."""
    return WRITERS[form][0](made)


def write(
    made: Document,
    folder: Path,
    forms: Collection[str],
    *,
    name: str = "report",
    named: bool = False,
) -> list[Path]:
    """Write the report in these formats, and its pictures; return the files. `named`: the folder is
    one that the user named, where files and links keep what they are."""
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
    """Write each picture as SVG, PDF and PNG; return the files."""
    out = []
    for one in pictures:
        for ending, data in (("svg", one.svg.encode()), ("pdf", one.pdf), ("png", one.png)):
            out.append(folder / f"{one.name}.{ending}")
            write_file(out[-1], data, named=named)
    return out
