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
    """Return title, runs, and parts with answers and tables as JSON data, numbers unrounded."""
    parts = []
    for part in document.parts:
        tables = [
            {"name": t.name, "caption": t.caption, "rows": t.records(), "notes": list(t.notes)}
            for t in part.tables
        ]
        parts.append({"title": part.title, "answers": list(part.answers), "tables": tables})
    return {"title": document.title, "runs": list(document.runs), "parts": parts}


VALUES = ("", "error", "low", "high", "n", "groups", "p", "holm")


def _render_csv(document: Document) -> str:
    """Return a line for each cell; `row` is the row's texts, what a cell lacks is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("part", "table", "row", "column", "value", *VALUES[1:]))
    listed = (
        (p.title, table, row) for p in document.parts for table in p.tables for row in table.rows
    )
    for title, table, row in listed:
        cells = list(zip(table.columns, row.cells, strict=True))
        name = ", ".join(str(cell).strip() for column, cell in cells if column.text)
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
    """Return a cell as escaped text, set by the mark of its rank or of a printed one."""
    text, more = map(escape, cell[:2])
    if row.printed:
        return marks[3].format(f"{text} {more}".rstrip())
    return f"{marks[cell[2]].format(text)} {more}".rstrip()


def notes_of(table: Table, marks: str) -> tuple[str, ...]:
    """Return a table's notes, first `marks`, which says how the best are set, if some are."""
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
    return page.render(document=document, slug=slug, notes=notes_of)


LATEX_MARKS = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}", r"\textit{{{}}}")
_SIGNS = '\\&%$#_{}~^<>|"±−→·…'
_WRITTEN = (
    r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{} \textless{} "
    r"\textgreater{} \textbar{} \textquotedbl{} $\pm$ $-$ $\rightarrow$ $\cdot$ \ldots{}"
)
LATEX = dict(zip(_SIGNS, _WRITTEN.split(), strict=True))


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
    wide = max(map(len, rows)) > 78  # characters of a line
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
    """Yield what `rich` prints; without a terminal `*` marks the best, `+` the second."""
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
    """Yield a table for `rich`; one that is too wide gets short heads and errors below their means,
    and if that does not help is several with some of the columns each, all with those of text."""
    for narrow, gap in ((False, 2), (True, 1)):
        heads = [column.head for column in table.columns]
        if narrow:
            heads = [(c.short or c.head).replace(" ", "\n") for c in table.columns]
        rows = [
            [_terminal_cell(c, row, marked, narrow) for c in cells] for row, cells in table.shown()
        ]
        shown = [(head, *(row[k].plain for row in rows)) for k, head in enumerate(heads)]
        widths = [gap + max(map(cell_len, "\n".join(column).split("\n"))) for column in shown]
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
            fixed = None if place in texts else widths[place] - gap
            justify: Literal["left", "right"] = "left" if place in texts else "right"
            out.add_column(heads[place], justify=justify, overflow="fold", width=fixed)
        for row in rows:
            out.add_row(*(row[place] for place in part))
        yield out


def _terminal_cell(cell: Shown, row: Row, marked: bool, narrow: bool) -> Text:
    text, more, rank = cell
    shown = Text(make_printable(text), style="dim" if row.printed else STYLES[rank])
    shown.append(("", "*", "+")[rank] if marked else "")
    behind = ("\n" if narrow else " ") + make_printable(more) if more else ""
    return shown.append(behind, style="not bold not underline")


WRITERS = {
    "markdown": (render_markdown, "md"),
    "latex": (render_latex, "tex"),
    "html": (render_html, "html"),
    "json": (lambda d: json.dumps(as_data(d), ensure_ascii=False, indent=1) + "\n", "json"),
    "csv": (_render_csv, "csv"),
}
"""Writer and file ending by format."""


def render_text(document: Document, form: str) -> str:
    """Return the report as text: markdown, latex, html, json or csv."""
    return WRITERS[form][0](document)


def write_report(
    document: Document, folder: Path, forms: Collection[str], *, named: bool = False
) -> list[Path]:
    """Write `report.md` and so on, and the pictures as SVG, PDF and PNG; return the paths.

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
    for name, data in files.items():
        write_file(folder / name, data, named_by_user=named)
    return [folder / name for name in files]
