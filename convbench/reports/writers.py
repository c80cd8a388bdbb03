"""Write a report's document as Markdown or HTML, and its files with their pictures."""

from __future__ import annotations

import csv
import html as entities
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from convbench.reports.citations import Citations
from convbench.reports.document import (
    Cell,
    Document,
    Figure,
    Picture,
    ReportPart,
    SideBySide,
    Table,
    Transcript,
    slug,
)
from convbench.reports.latex import render_latex
from convbench.store.jsonl import disk_error, write_file
from convbench.util.printable import make_printable

LINK = re.compile(r"(?i)((?:[a-z][a-z0-9+.-]{0,30}://|www\.)[^\s|`]+)")
"""Text that Markdown renderers turn into a link by themselves, unless it is code."""
RANKED = "Best **bold**, second <u>underlined</u>."
JUSTIFICATIONS = "The judge's justifications"
"""What unfolds them below a conversation."""


def render_markdown(document: Document) -> str:
    """Return the report as Markdown; pictures are linked as `NAME.svg`."""
    lines = [f"# {inline_text(document.title)}", ""]
    for part in document.parts:
        lines += _markdown_part(part)
    if document.citations is not None:
        lines.append(markdown_citations(document.citations))
    return "\n".join(lines).rstrip() + "\n"


def _markdown_part(part: ReportPart) -> Iterator[str]:
    yield from (f"## {inline_text(part.title)}", "")
    for fact in part.facts:
        yield from (inline_text(fact), "")
    for table in part.tables:
        yield from (f"### {inline_text(table.caption)}", "", *markdown_table(table), "")
    for picture in part.pictures:
        yield from (f"![{inline_text(picture.caption)}]({picture.name}.svg)", "")
        yield from (inline_text(picture.caption), "")
    for talk in part.talks:
        yield from _markdown_sides(talk)
    for note in part.notes:
        yield from (inline_text(note), "")


def _markdown_sides(talk: SideBySide) -> Iterator[str]:
    yield from (f"### {inline_text(talk.title)}", "")
    for fact in talk.facts:
        yield from (inline_text(fact), "")
    for side in talk.sides:
        yield from (f"#### {inline_text(side.title)}", "", inline_text(side.facts), "")
        for who, text in side.turns:
            yield f"- **{inline_text(who)}**: {inline_text(text)}"
        yield ""
        if side.justifications:
            yield from ("<details>", f"<summary>{JUSTIFICATIONS}</summary>", "")
            for what, words in side.justifications:
                yield f"- **{inline_text(what)}**: {inline_text(words)}"
            yield from ("", "</details>", "")
    for table in talk.tables:
        yield from (f"#### {inline_text(table.caption)}", "", *markdown_table(table), "")


def markdown_citations(citations: Citations) -> str:
    """Return the Markdown section with what to cite: which spec follows which paper, and BibTeX."""
    sources = "".join(f"- {inline_text(source)}\n" for source in citations.sources)
    body = fence_code(make_printable(citations.bibtex), "bibtex")
    return "\n".join(["## Citation", "", *([sources] if sources else []), body])


def fence_code(text: str, language: str) -> str:
    """Return text as a Markdown code block, with a fence longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of the table as Markdown, and after an empty line its notes, each followed by
    an empty line.

    If a cell has a rank, the first note explains the marks. The caption is not included.
    """
    yield "| " + " | ".join(inline_text(column.head) for column in table.columns) + " |"
    yield "|" + "|".join("---:" if column.numeric else ":---" for column in table.columns) + "|"
    for row in table.rows:
        yield "| " + " | ".join(map(_markdown_cell, row)) + " |"
    yield ""
    for note in (*([RANKED] if table.has_ranks else []), *map(inline_text, table.notes)):
        yield from (note, "")


def _markdown_cell(cell: Cell) -> str:
    text = inline_text(cell.text.strip())
    if cell.error is not None:
        text += f" ± {cell.error}"
    if cell.quiet:
        return f"*{text}*"
    return {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(cell.rank, text)


def inline_text(text: object) -> str:
    """Return untrusted text as one line in which nothing is read as markup, link or picture."""
    line = " ".join(make_printable(str(text)).split())
    return "".join(
        inline_code(part) if LINK.fullmatch(part) else _escape_markdown(part)
        for part in LINK.split(line)
    )


def _escape_markdown(text: str) -> str:
    out = "".join("\\" + c if c in "\\`*_|[]#" else c for c in text)
    return out.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def inline_code(text: object) -> str:
    """Return untrusted text as an inline code span; `-` if it is empty."""
    out = " ".join(make_printable(str(text)).split())
    longest = max(map(len, re.findall("`+", out)), default=0)
    fence, gap = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{gap}{out}{gap}{fence}" if out else "-"


STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --quiet: #666 }
@media (prefers-color-scheme: dark) { :root { --quiet: #aaa } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.3rem; margin-top: 2.5rem;
  border-bottom: 1px solid var(--line) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
caption { text-align: left; font-weight: 600; padding: .8rem 0 .3rem }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap }
th { vertical-align: bottom } td.text, th.text { text-align: left }
td.text { white-space: normal; min-width: 6rem }
thead { border-top: 2px solid; border-bottom: 1px solid }
tbody { border-bottom: 2px solid }
tbody tr:hover { background: var(--soft) }
.quiet { color: var(--quiet); font-style: italic } .quiet.text { padding-left: 1.8rem }
.error { color: var(--quiet); font-weight: 400 }
p.note { color: var(--quiet); font-size: .85rem; margin: .3rem 0; max-width: 60rem }
figure { margin: 1.5rem 0; max-width: 60rem } figcaption { font-size: .85rem;
  color: var(--quiet) }
figure > div { background: #fff; padding: .5rem; border-radius: .4rem }
figure svg { width: 100%; height: auto; display: block; margin: 0 auto }
nav ul { columns: 22rem 2; padding-left: 1.2rem }
h3 { font-size: 1.1rem; margin: 2rem 0 .3rem } h4 { margin: 0 0 .2rem }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
  gap: 1rem }
article { border: 1px solid var(--line); border-radius: .4rem; padding: .8rem; min-width: 0 }
dl { margin: 0; font-size: .9rem } dt { font-weight: 600; margin-top: .6rem }
dd { margin: .1rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate }
p, h1, h2, h3, li { overflow-wrap: anywhere } pre { overflow-x: auto; font-size: .8rem }
@media print { body { margin: 0; font-size: 11px } figure, table { break-inside: avoid } }
"""
SCREEN = 130
"""Pixels an inch of a picture. Larger than on paper, which is read from nearer."""
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: nothing is fetched and no script runs, whatever a model wrote."""


def escape_html(text: str) -> str:
    """Return untrusted text escaped for HTML, with a mark for each control character."""
    return entities.escape(make_printable(text))


def render_html(document: Document) -> str:
    """Return the report as one HTML page without scripts.

    All text is escaped; pictures are inline SVG.
    """
    title = escape_html(document.title)
    parts = "\n".join(line for part in document.parts for line in _html_part(part))
    titles = [part.title for part in document.parts]
    if document.citations is not None:
        parts += _html_citations(document.citations)
        titles.append("Citation")
    links = "".join(f'<li><a href="#{slug(t)}">{escape_html(t)}</a></li>' for t in titles)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n<nav><ul>{links}</ul></nav>\n{parts}\n</main>\n</body>\n</html>\n"
    )


def _html_part(part: ReportPart) -> Iterator[str]:
    yield f'<section id="{slug(part.title)}">\n<h2>{escape_html(part.title)}</h2>'
    for fact in part.facts:
        yield f"<p>{escape_html(fact)}</p>"
    for table in part.tables:
        yield from _html_table(table)
    for picture in part.pictures:
        yield from _html_picture(picture)
    for talk in part.talks:
        yield from _html_sides(talk)
    for note in part.notes:
        yield f'<p class="note">{escape_html(note)}</p>'
    yield "</section>"


def _html_citations(citations: Citations) -> str:
    listed = "".join(f"<li>{escape_html(source)}</li>" for source in citations.sources)
    sources = f"<ul>{listed}</ul>\n" if listed else ""
    return (
        f'\n<section id="citation">\n<h2>Citation</h2>\n{sources}'
        f"<pre>{escape_html(citations.bibtex)}</pre>\n</section>"
    )


def _html_sides(talk: SideBySide) -> Iterator[str]:
    yield f"<h3>{escape_html(talk.title)}</h3>"
    for fact in talk.facts:
        yield f'<p class="note">{escape_html(fact)}</p>'
    yield '<div class="sides">'
    for side in talk.sides:
        yield from _html_transcript(side)
    yield "</div>"
    for table in talk.tables:
        yield from _html_table(table)


def _html_transcript(side: Transcript) -> Iterator[str]:
    yield f"<article><h4>{escape_html(side.title)}</h4>"
    yield f'<p class="note">{escape_html(side.facts)}</p><dl>'
    for who, text in side.turns:
        yield f"<dt>{escape_html(who)}</dt><dd>{escape_html(text)}</dd>"
    yield "</dl>"
    if side.justifications:
        yield '<details style="margin-top: .8rem; font-size: .9rem">'
        yield f"<summary>{escape_html(JUSTIFICATIONS)}</summary><dl>"
        for what, words in side.justifications:
            yield f"<dt>{escape_html(what)}</dt><dd>{escape_html(words)}</dd>"
        yield "</dl></details>"
    yield "</article>"


def _html_table(table: Table) -> Iterator[str]:
    yield f'<div class="scroll"><table>\n<caption>{escape_html(table.caption)}</caption>'
    heads = "".join(
        f'<th scope="col"{_class_attribute(column.numeric)}>{escape_html(column.head)}</th>'
        for column in table.columns
    )
    yield f"<thead><tr>{heads}</tr></thead>\n<tbody>"
    for row in table.rows:
        cells = "".join(_html_cell(c, k.numeric) for c, k in zip(row, table.columns, strict=True))
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"
    marks = ("Best bold, second underlined.",) if table.has_ranks else ()
    for note in (*marks, *table.notes):
        yield f'<p class="note">{escape_html(note)}</p>'


def _class_attribute(numeric: bool, quiet: bool = False) -> str:
    names = [name for name, on in (("text", not numeric), ("quiet", quiet)) if on]
    return f' class="{" ".join(names)}"' if names else ""


def _html_cell(cell: Cell, numeric: bool) -> str:
    text = escape_html(cell.text.strip())
    text = {1: f"<b>{text}</b>", 2: f"<u>{text}</u>"}.get(cell.rank, text)
    if cell.error is not None:
        text += f' <span class="error">± {escape_html(cell.error)}</span>'
    return f"<td{_class_attribute(numeric, cell.quiet)}>{text}</td>"


def _html_picture(picture: Picture) -> Iterator[str]:
    start = picture.svg.index("<svg")
    yield f'<figure id="{slug(picture.name)}"><div role="img" aria-label='
    wide = round(picture.size[0] * SCREEN)
    caption = escape_html(picture.caption)
    yield f'"{caption}" style="max-width: {wide}px">{picture.svg[start:]}</div>'
    yield f"<figcaption>{caption}</figcaption></figure>"


FIGURE = "figure"
"""Key of a cell's `Figure`: the number with its error, interval, p and n."""


def as_data(document: Document, files: tuple[str, ...] = ()) -> Any:
    """Return the report as JSON data with the keys title, runs, parts and files.

    A part has title, facts, tables and notes; a table label, caption, columns, rows and notes; a
    cell text, error, rank and the figure behind it (None if there is no number). Pictures and
    conversations are left out.
    """
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
    """Return the data of `as_data` as indented JSON text, with an empty list of files."""
    return json.dumps(as_data(document), ensure_ascii=False, indent=1) + "\n"


def as_csv(document: Document) -> str:
    """Return CSV with a head and a line for each cell: part, table, row, column, value, error.

    `row` is the row's first cell, which has no line of its own. `value` is the printed text; an
    error that is missing is empty. Facts and notes are left out.
    """
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
    """Return the report as text in a format: markdown, latex, html, json or csv.

    Raise KeyError for another one.
    """
    return WRITERS[form][0](document)


def write_report(
    document: Document,
    folder: Path,
    forms: Collection[str],
    *,
    name: str = "report",
    named: bool = False,
) -> list[Path]:
    """Write the report as NAME.md, .tex, .html, .json or .csv for these formats, and its pictures;
    return the paths, texts first.

    The folder is created. Existing files are replaced; with `named` (the user chose the folder)
    they are written in place. Raise RunError if something cannot be written.
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
    """Write each picture as NAME.svg, NAME.pdf and NAME.png into an existing folder; return the
    paths in this order.

    With `named` existing files are written in place. Raise RunError if a file cannot be written.
    """
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
