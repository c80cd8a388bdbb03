"""A report as one self-contained HTML file, which opens from disk and loads nothing."""

from __future__ import annotations

import html as entities
from collections.abc import Iterator

from convbench.printable import printable
from convbench.report.document import (
    Cell,
    Document,
    Part,
    Picture,
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
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: nothing is fetched and no script runs, whatever a model wrote."""


def escape(text: str) -> str:
    """Return untrusted text escaped for HTML, with a mark for each control character."""
    return entities.escape(printable(text))


def html(document: Document) -> str:
    """Return the page. All text is escaped; pictures are inline SVG."""
    title = escape(document.title)
    parts = "\n".join(line for part in document.parts for line in _part(part))
    links = "".join(
        f'<li><a href="#{slug(part.title)}">{escape(part.title)}</a></li>'
        for part in document.parts
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n<nav><ul>{links}</ul></nav>\n{parts}\n</main>\n</body>\n</html>\n"
    )


def _part(part: Part) -> Iterator[str]:
    yield f'<section id="{slug(part.title)}">\n<h2>{escape(part.title)}</h2>'
    for fact in part.facts:
        yield f"<p>{escape(fact)}</p>"
    for table in part.tables:
        yield from _table(table)
    for picture in part.pictures:
        yield from _picture(picture)
    for talk in part.talks:
        yield from _beside(talk)
    for note in part.notes:
        yield f'<p class="note">{escape(note)}</p>'
    yield "</section>"


def _beside(talk: SideBySide) -> Iterator[str]:
    yield f"<h3>{escape(talk.title)}</h3>"
    for fact in talk.facts:
        yield f'<p class="note">{escape(fact)}</p>'
    yield '<div class="sides">'
    for side in talk.sides:
        yield from _transcript(side)
    yield "</div>"


def _transcript(side: Transcript) -> Iterator[str]:
    yield f"<article><h4>{escape(side.title)}</h4>"
    yield f'<p class="note">{escape(side.facts)}</p><dl>'
    for who, said in side.turns:
        yield f"<dt>{escape(who)}</dt><dd>{escape(said)}</dd>"
    yield "</dl></article>"


def _table(table: Table) -> Iterator[str]:
    yield f'<div class="scroll"><table>\n<caption>{escape(table.caption)}</caption>'
    heads = "".join(
        f'<th scope="col"{_kind(column.numeric)}>{escape(column.head)}</th>'
        for column in table.columns
    )
    yield f"<thead><tr>{heads}</tr></thead>\n<tbody>"
    for row in table.rows:
        cells = "".join(_cell(c, k.numeric) for c, k in zip(row, table.columns, strict=True))
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"
    marks = ("Best bold, second underlined.",) if table.ranked else ()
    for note in (*marks, *table.notes):
        yield f'<p class="note">{escape(note)}</p>'


def _kind(numeric: bool, quiet: bool = False) -> str:
    names = [name for name, on in (("text", not numeric), ("quiet", quiet)) if on]
    return f' class="{" ".join(names)}"' if names else ""


def _cell(cell: Cell, numeric: bool) -> str:
    text = escape(cell.text.strip())
    text = {1: f"<b>{text}</b>", 2: f"<u>{text}</u>"}.get(cell.rank, text)
    if cell.error is not None:
        text += f' <span class="error">± {escape(cell.error)}</span>'
    return f"<td{_kind(numeric, cell.quiet)}>{text}</td>"


def _picture(picture: Picture) -> Iterator[str]:
    start = picture.svg.index("<svg")
    yield f'<figure id="{slug(picture.name)}"><div role="img" aria-label='
    wide = round(picture.size[0] * SCREEN)
    yield f'"{escape(picture.caption)}" style="max-width: {wide}px">{picture.svg[start:]}</div>'
    yield f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
