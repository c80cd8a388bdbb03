"""Write a report: to a terminal, as Markdown, HTML, LaTeX, JSON or CSV, with its pictures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from convbench.reports.document import Document, Row, Shown, Table, cell_values, slug
from convbench.store.jsonl import disk_error, write_file
from convbench.util.markdown import inline_text, markdown_citations
from convbench.util.printable import make_printable

STYLES = ("", "bold", "underline")


def as_data(document: Document) -> dict[str, Any]:
    """Return the report as JSON data: title, runs, and parts with answers and tables.

    A table has its name, caption, notes and rows; a row is a mapping with every number unrounded.
    """
    parts = [
        {
            "title": part.title,
            "answers": list(part.answers),
            "tables": [
                {
                    "name": table.name,
                    "caption": table.caption,
                    "rows": table.records(),
                    "notes": list(table.notes),
                }
                for table in part.tables
            ],
        }
        for part in document.parts
    ]
    return {"title": document.title, "runs": list(document.runs), "parts": parts}


def _render_json(document: Document) -> str:
    return json.dumps(as_data(document), ensure_ascii=False, indent=1) + "\n"


VALUES = ("", "error", "low", "high", "n", "groups", "p", "holm")


def _render_csv(document: Document) -> str:
    """Return a line for each cell: part, table, row, column, value, error, low, high, n, groups, p,
    holm, unrounded. `row` is the row's texts; what a cell lacks is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("part", "table", "row", "column", "value", *VALUES[1:]))
    tables = [(part.title, table) for part in document.parts for table in part.tables]
    for title, table in tables:
        for row in table.rows:
            cells = list(zip(table.columns, row.cells, strict=True))
            name = ", ".join(str(cell).strip() for c, cell in cells if c.text)
            for column, cell in cells:
                if not column.text and cell is not None:
                    values = map(cell_values(cell).get, VALUES)
                    writer.writerow((title, table.name, name, column.key, *values))
    return out.getvalue()


MARKDOWN = ("{}", "**{}**", "<u>{}</u>", "*{}*")


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
    for row, cells in table.shown():
        yield "| " + " | ".join(_marked(cell, row, MARKDOWN, inline_text) for cell in cells) + " |"
    yield ""
    ranks = "Best **bold**, second <u>underlined</u>."
    for note in notes_of(table, ranks):
        yield from (note if note == ranks else inline_text(note), "")


def _marked(cell: Shown, row: Row, marks: Sequence[str], escape: Callable[[str], str]) -> str:
    """Return a cell as escaped text; `marks` set a plain cell, the best, the second, a printed
    one."""
    text, more = escape(cell.text), escape(cell.more)
    if row.printed:
        return marks[3].format(f"{text} {more}".rstrip())
    return f"{marks[cell.rank].format(text)} {more}".rstrip()


def notes_of(table: Table, marks: str) -> tuple[str, ...]:
    """Return a table's notes, first `marks`, which says how the best are set, if some are."""
    ranked = any(rank for ranks in table.ranks() for rank in ranks)
    return (*([marks] if ranked else []), *table.notes)


def render_html(document: Document) -> str:
    """Return the report as one page without scripts: all text is escaped, pictures are inline."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: make_printable(value) if type(value) is str else value,
    )
    drawn = {
        picture.name: Markup(picture.files["svg"].decode().partition("<svg")[2])  # noqa: S704 - drawn by us
        for part in document.parts
        for picture in part.pictures
    }
    page = pages.get_template("report.html.j2")
    return page.render(document=document, slug=slug, notes=notes_of, drawn=drawn)


LATEX_MARKS = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}", r"\textit{{{}}}")
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
        lines += [f"% {escape_latex(line)}" for line in (part.title, *part.answers)]
        for table in part.tables:
            label = f"{slug(part.title)}-{table.name}"
            lines += _latex_table(table, f"{table.caption}: {part.title}", label)
        for picture in part.pictures:
            lines += ["\\begin{figure}\\centering"]
            lines += [f"\\includegraphics[width=\\linewidth]{{{picture.name}.pdf}}"]
            lines += [f"\\caption{{{escape_latex(picture.caption)}}}", "\\end{figure}"]
    return "\n".join(lines) + "\n"


def _latex_table(table: Table, caption: str, label: str) -> Iterator[str]:
    rows = [" & ".join(escape_latex(column.head) for column in table.columns)]
    for row, cells in table.shown():
        rows.append(" & ".join(_marked(cell, row, LATEX_MARKS, escape_latex) for cell in cells))
    kinds = "".join("l" if column.text else "r" for column in table.columns)
    wide = max(map(len, rows)) > WIDEST
    notes = " ".join(map(escape_latex, notes_of(table, "Best bold, second underlined.")))
    yield from ("\\begin{table}\\centering", f"\\caption{{{escape_latex(caption)}. {notes}}}")
    yield f"\\label{{tab:{label}}}"
    yield "\\resizebox{\\linewidth}{!}{%" if wide else "{%"
    yield from (f"\\begin{{tabular}}{{{kinds}}}", "\\toprule", f"{rows[0]} \\\\", "\\midrule")
    yield from (f"{row} \\\\" for row in rows[1:])
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
            yield from (Text(note, style="dim") for note in notes_of(table, marks))
            yield Text("")


def terminal_table(table: Table, width: int, *, marked: bool) -> Iterator[RenderableType]:
    """Yield a table for `rich`: if it is too wide with short heads and errors below their means,
    then several with some of the columns each, all with those of text."""
    for narrow, gap in ((False, 2), (True, 1)):
        lines = _terminal_lines(table, narrow, marked)
        widths = [max(map(_width, column)) + gap for column in zip(*lines, strict=True)]
        if sum(widths) - gap <= width:
            break
    texts = [place for place, column in enumerate(table.columns) if column.text]
    parts = [list(texts)]
    for place in (place for place in range(len(widths)) if place not in texts):
        if sum(widths[p] for p in (*parts[-1], place)) - gap > width and parts[-1] != texts:
            parts.append(list(texts))
        parts[-1].append(place)
    for part in parts:
        out = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0))
        for place in part:
            justify: Literal["left", "right"] = "left" if place in texts else "right"
            out.add_column(lines[0][place], justify=justify, overflow="fold")
        for line in lines[1:]:
            out.add_row(*(line[place] for place in part))
        yield out


def _terminal_lines(table: Table, narrow: bool, marked: bool) -> list[list[Text]]:
    heads = [(c.short or c.head).replace(" ", "\n") if narrow else c.head for c in table.columns]
    lines = [list(map(Text, heads))]
    for row, cells in table.shown():
        line = []
        for cell in cells:
            style = "dim" if row.printed else STYLES[cell.rank]
            shown = Text(make_printable(cell.text), style=style)
            shown.append(("", "*", "+")[cell.rank] if marked else "")
            more = ("\n" if narrow else " ") + make_printable(cell.more)
            shown.append(more if cell.more else "", style="not bold not underline")
            line.append(shown)
        lines.append(line)
    return lines


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.split("\n")))


WRITERS = {
    "markdown": (render_markdown, "md"),
    "latex": (render_latex, "tex"),
    "html": (render_html, "html"),
    "json": (_render_json, "json"),
    "csv": (_render_csv, "csv"),
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
        files |= {f"{picture.name}.{ending}": data for ending, data in picture.files.items()}
    files |= document.data
    for name, data in files.items():
        write_file(folder / name, data, named_by_user=named)
    return [folder / name for name in files]
