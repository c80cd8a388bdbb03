"""A report as one self-contained HTML file, which opens from disk and loads nothing."""

from __future__ import annotations

import html as entities
from collections.abc import Iterator

from convbench.printable import make_printable
from convbench.report.document import (
    Cell,
    Document,
    Picture,
    ReportPart,
    SideBySide,
    Table,
    Transcript,
    slug,
)

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
p, h1, h2, h3, li { overflow-wrap: anywhere }
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
    """Return the page. All text is escaped; pictures are inline SVG."""
    title = escape_html(document.title)
    parts = "\n".join(line for part in document.parts for line in _html_part(part))
    links = "".join(
        f'<li><a href="#{slug(part.title)}">{escape_html(part.title)}</a></li>'
        for part in document.parts
    )
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


def _html_sides(talk: SideBySide) -> Iterator[str]:
    yield f"<h3>{escape_html(talk.title)}</h3>"
    for fact in talk.facts:
        yield f'<p class="note">{escape_html(fact)}</p>'
    yield '<div class="sides">'
    for side in talk.sides:
        yield from _html_transcript(side)
    yield "</div>"


def _html_transcript(side: Transcript) -> Iterator[str]:
    yield f"<article><h4>{escape_html(side.title)}</h4>"
    yield f'<p class="note">{escape_html(side.facts)}</p><dl>'
    for who, text in side.turns:
        yield f"<dt>{escape_html(who)}</dt><dd>{escape_html(text)}</dd>"
    yield "</dl></article>"


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
