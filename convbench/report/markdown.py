"""A report as Markdown: GitHub tables, best bold, second underlined."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.printable import printable
from convbench.report.document import Cell, Document, Part, SideBySide, Table

RANKED = "Best **bold**, second <u>underlined</u>."


def markdown(document: Document) -> str:
    """Return the report; pictures are referred to by `NAME.svg`."""
    lines = [f"# {_plain(document.title)}", ""]
    for part in document.parts:
        lines += _part(part)
    return "\n".join(lines).rstrip() + "\n"


def _part(part: Part) -> Iterator[str]:
    yield from (f"## {_plain(part.title)}", "")
    for fact in part.facts:
        yield from (_plain(fact), "")
    for table in part.tables:
        yield from (f"### {_plain(table.caption)}", "", *markdown_table(table), "")
    for picture in part.pictures:
        yield from (f"![{_plain(picture.caption)}]({picture.name}.svg)", "")
        yield from (_plain(picture.caption), "")
    for talk in part.talks:
        yield from _beside(talk)
    for note in part.notes:
        yield from (_plain(note), "")


def _beside(talk: SideBySide) -> Iterator[str]:
    yield from (f"### {_plain(talk.title)}", "")
    for fact in talk.facts:
        yield from (_plain(fact), "")
    for side in talk.sides:
        yield from (f"#### {_plain(side.title)}", "", _plain(side.facts), "")
        for who, said in side.turns:
            yield f"- **{_plain(who)}**: {_plain(said)}"
        yield ""


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the table's lines and its footnotes."""
    yield "| " + " | ".join(_plain(column.head) for column in table.columns) + " |"
    yield "|" + "|".join("---:" if column.numeric else ":---" for column in table.columns) + "|"
    for row in table.rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"
    yield ""
    for note in (*([RANKED] if table.ranked else []), *map(_plain, table.notes)):
        yield from (note, "")


def _cell(cell: Cell) -> str:
    text = _plain(cell.text.strip())
    if cell.error is not None:
        text += f" ± {cell.error}"
    if cell.quiet:
        return f"*{text}*"
    return {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(cell.rank, text)


def _plain(text: str) -> str:
    """Keep what was written by others from being read as markup."""
    out = "".join("\\" + c if c in "\\`*_|[]#" else c for c in printable(text))
    return " ".join(out.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
