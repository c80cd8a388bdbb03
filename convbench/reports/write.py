"""Write a report: to a terminal, as Markdown, HTML, LaTeX, JSON or CSV, with its pictures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from convbench.reports.document import (
    Document,
    Picture,
    Table,
    cell_text,
    cell_values,
    slug,
)
from convbench.store.jsonl import disk_error, write_file
from convbench.util.markdown import inline_text, markdown_citations
from convbench.util.printable import make_printable

STYLES = {0: "", 1: "bold", 2: "underline"}


def as_data(document: Document) -> dict[str, Any]:
    """Return the report as JSON data: title, runs, and parts with answers and tables.

    A table has its name, caption, notes and rows; a row is a mapping with every number unrounded.
    """
    return {
        "title": document.title,
        "runs": list(document.runs),
        "parts": [
            {
                "title": part.title,
                "answers": list(part.answers),
                "tables": [
                    {
                        "name": table.name,
                        "caption": table.caption,
                        "rows": [table.record(row) for row in table.rows],
                        "notes": list(table.notes),
                    }
                    for table in part.tables
                ],
            }
            for part in document.parts
        ],
    }


def as_json(document: Document) -> str:
    """Return the data of the report as indented JSON."""
    return json.dumps(as_data(document), ensure_ascii=False, indent=1) + "\n"


VALUES = ("", "error", "low", "high", "n", "groups", "p", "holm")


def as_csv(document: Document) -> str:
    """Return a line for each cell: part, table, row, column, value, error, low, high, n, groups, p,
    holm, unrounded. `row` is the row's texts; what a cell lacks is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("part", "table", "row", "column", "value", *VALUES[1:]))
    for part in document.parts:
        for table in part.tables:
            for row in table.rows:
                cells = list(zip(table.columns, row.cells, strict=True))
                name = ", ".join(str(cell).strip() for c, cell in cells if c.text)
                for column, cell in cells:
                    if not column.text and cell is not None:
                        values = cell_values(cell)
                        numbers = (values.get(key) for key in VALUES)
                        writer.writerow((part.title, table.name, name, column.key, *numbers))
    return out.getvalue()


def render_markdown(document: Document) -> str:
    """Return the report as Markdown; pictures are linked as `NAME.svg`."""
    lines = [f"# {inline_text(document.title)}", ""]
    for part in document.parts:
        lines += [f"## {inline_text(part.title)}", ""]
        lines += [line for answer in part.answers for line in (f"- {inline_text(answer)}", "")]
        for table in part.tables:
            lines += [f"### {inline_text(table.caption)}", "", *markdown_table(table)]
        for picture in part.pictures:
            caption = inline_text(picture.caption)
            lines += [f"![{caption}]({picture.name}.svg)", "", caption, ""]
    if document.bibtex:
        lines += [markdown_citations(document.sources, document.bibtex)]
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table as Markdown, without its caption, then its notes."""
    yield "| " + " | ".join(inline_text(column.head) for column in table.columns) + " |"
    yield "|" + "|".join(":---" if column.text else "---:" for column in table.columns) + "|"
    for row, ranks in zip(table.rows, table.ranks(), strict=True):
        cells = []
        for cell, column, rank in zip(row.cells, table.columns, ranks, strict=True):
            text, more = (inline_text(part) for part in cell_text(cell, column))
            text = {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(rank, text)
            cells.append(f"*{text} {more}*".replace(" *", "*") if row.printed
                         else f"{text} {more}".rstrip())  # fmt: skip
        yield "| " + " | ".join(cells) + " |"
    yield ""
    for note in _notes(table, "Best **bold**, second <u>underlined</u>."):
        yield from (note if note.startswith("Best") else inline_text(note), "")


def _notes(table: Table, marks: str) -> tuple[str, ...]:
    ranked = any(rank for ranks in table.ranks() for rank in ranks)
    return (*([marks] if ranked else []), *table.notes)


def render_html(document: Document) -> str:
    """Return the report as one page without scripts: all text is escaped, pictures are inline."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: make_printable(value) if type(value) is str else value,
    )
    page = pages.get_template("report.html.j2")
    tools = {"cell_text": cell_text, "slug": slug, "notes": _notes}
    return page.render(document=document, svg=_svg, **tools)


def _svg(picture: Picture) -> Any:
    from markupsafe import Markup

    return Markup(picture.svg[picture.svg.index("<svg") :])  # noqa: S704 - drawn by us


LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "±": r"$\pm$", "−": r"$-$", "→": r"$\rightarrow$", "·": r"$\cdot$", "…": r"\ldots{}",
}  # fmt: skip
WIDEST = 78
"""Characters of a row beyond which a LaTeX table is scaled to the line."""


def render_latex(document: Document) -> str:
    """Return the tables as LaTeX to paste into a document with booktabs, graphicx and textcomp."""
    lines = ["% needs \\usepackage{booktabs,graphicx,textcomp} and \\usepackage[T1]{fontenc}"]
    for part in document.parts:
        lines += [f"% {escape_latex(part.title)}"]
        lines += [f"% {escape_latex(answer)}" for answer in part.answers]
        for table in part.tables:
            label = f"{slug(part.title)}-{table.name}"
            lines += _latex_table(table, f"{table.caption}: {part.title}", label)
        for picture in part.pictures:
            lines += ["\\begin{figure}\\centering"]
            lines += [f"\\includegraphics[width=\\linewidth]{{{picture.name}.pdf}}"]
            lines += [f"\\caption{{{escape_latex(picture.caption)}}}", "\\end{figure}"]
    return "\n".join(lines) + "\n"


def _latex_table(table: Table, caption: str, label: str) -> Iterator[str]:
    rows = []
    for row, ranks in zip(table.rows, table.ranks(), strict=True):
        cells = []
        for cell, column, rank in zip(row.cells, table.columns, ranks, strict=True):
            text, more = (escape_latex(part) for part in cell_text(cell, column))
            text = {1: f"\\textbf{{{text}}}", 2: f"\\underline{{{text}}}"}.get(rank, text)
            shown = f"{text} {more}".rstrip()
            cells.append(f"\\textit{{{shown}}}" if row.printed else shown)
        rows.append(" & ".join(cells))
    kinds = "".join("l" if column.text else "r" for column in table.columns)
    heads = " & ".join(escape_latex(column.head) for column in table.columns)
    wide = max(map(len, (heads, *rows))) > WIDEST
    notes = " ".join(map(escape_latex, _notes(table, "Best bold, second underlined.")))
    yield from ("\\begin{table}\\centering", f"\\caption{{{escape_latex(caption)}. {notes}}}")
    yield f"\\label{{tab:{label}}}"
    yield "\\resizebox{\\linewidth}{!}{%" if wide else "{%"
    yield from (f"\\begin{{tabular}}{{{kinds}}}", "\\toprule", f"{heads} \\\\", "\\midrule")
    yield from (f"{row} \\\\" for row in rows)
    yield from ("\\bottomrule", "\\end{tabular}}", "\\end{table}")


def escape_latex(text: object) -> str:
    """Return untrusted text as one line for LaTeX, in which nothing is a command."""
    line = " ".join(make_printable(str(text)).split())
    return "".join(LATEX.get(sign, sign) for sign in line)


def render_terminal(document: Document, console: Console) -> Iterator[RenderableType]:
    """Yield what `rich` is to print; where there is no terminal, `*` marks the best of a column and
    `+` the second."""
    for part in document.parts:
        yield Text(part.title, style="bold underline")
        yield from map(Text, part.answers)
        for table in part.tables:
            yield Text(table.caption, style="bold")
            yield from terminal_table(table, console.width, marked=not console.is_terminal)
            marks = "Best bold, second underlined." if console.is_terminal else "Best *, second +."
            for note in _notes(table, marks):
                yield Text(note, style="dim")
            yield Text("")


def terminal_table(table: Table, width: int, *, marked: bool) -> Iterator[RenderableType]:
    """Yield a table for `rich`: if it is too wide with short heads and errors below their means,
    then several with some of the columns each, all with those of text."""
    for narrow in (False, True):
        lines = _terminal_cells(table, narrow, marked)
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        gap = 1 if narrow else 2
        if sum(widths) + gap * (len(widths) - 1) <= width:
            break
    keys = [place for place, column in enumerate(table.columns) if column.text]
    taken = sum(widths[place] + gap for place in keys)
    parts, left = [list(keys)], width - taken
    for place in (place for place in range(len(widths)) if place not in keys):
        if widths[place] > left and len(parts[-1]) > len(keys):
            parts.append(list(keys))
            left = width - taken
        parts[-1].append(place)
        left -= widths[place] + gap
    for part in parts:
        out = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0))
        for place in part:
            justify: Literal["left", "right"] = "left" if place in keys else "right"
            out.add_column(lines[0][place], justify=justify, overflow="fold")
        for line in lines[1:]:
            out.add_row(*(line[place] for place in part))
        yield out


def _terminal_cells(table: Table, narrow: bool, marked: bool) -> list[list[Text]]:
    heads = [column.short or column.head for column in table.columns]
    broken = [head.replace(" ", "\n") for head in heads]
    lines = [
        [Text(head if narrow else c.head) for head, c in zip(broken, table.columns, strict=True)]
    ]
    for row, ranks in zip(table.rows, table.ranks(), strict=True):
        line = []
        for cell, column, rank in zip(row.cells, table.columns, ranks, strict=True):
            text, more = map(make_printable, cell_text(cell, column))
            shown = Text(text, style="dim" if row.printed else STYLES[rank])
            if marked:
                shown.append(("", "*", "+")[rank])
            if more:
                shown.append(("\n" if narrow else " ") + more, style="not bold not underline")
            line.append(shown)
        lines.append(line)
    return lines


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.split("\n")))


WRITERS = {
    "markdown": (render_markdown, "md"),
    "latex": (render_latex, "tex"),
    "html": (render_html, "html"),
    "json": (as_json, "json"),
    "csv": (as_csv, "csv"),
}
"""Writer and file ending by format."""


def render_text(document: Document, form: str) -> str:
    """Return the report as text: markdown, latex, html, json or csv."""
    return WRITERS[form][0](document)


def write_report(
    document: Document, folder: Path, forms: Collection[str], *, named: bool = False
) -> list[Path]:
    """Write `report.md`, `.tex`, `.html`, `.json` or `.csv` for these formats, and the pictures as
    SVG, PDF and PNG; return the paths, texts first.

    With `named` (the user chose the folder) existing files are written in place. Raise RunError if
    something cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from None
    files = {
        f"report.{WRITERS[form][1]}": render_text(document, form).encode() for form in sorted(forms)
    }
    for picture in (picture for part in document.parts for picture in part.pictures):
        files |= picture_files(picture)
    files |= document.data
    for name, data in files.items():
        write_file(folder / name, data, named_by_user=named)
    return [folder / name for name in files]


def picture_files(picture: Picture) -> dict[str, bytes]:
    """Return the contents of a picture's files by name."""
    kinds = (("svg", picture.svg.encode()), ("pdf", picture.pdf), ("png", picture.png))
    return {f"{picture.name}.{ending}": data for ending, data in kinds}
