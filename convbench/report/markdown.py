"""A report as Markdown: GitHub tables, best bold, second underlined."""

from __future__ import annotations

import re
from collections.abc import Iterator

from convbench.printable import printable
from convbench.report.document import Cell, Document, Part, SideBySide, Table

LINK = re.compile(r"(?i)((?:[a-z][a-z0-9+.-]{0,30}://|www\.)[^\s|`]+)")
"""Text that Markdown renderers turn into a link by themselves, unless it is code."""
RANKED = "Best **bold**, second <u>underlined</u>."


def markdown(document: Document) -> str:
    """Return the report as Markdown; pictures are linked as `NAME.svg`."""
    lines = [f"# {plain(document.title)}", ""]
    for part in document.parts:
        lines += _part(part)
    return "\n".join(lines).rstrip() + "\n"


def _part(part: Part) -> Iterator[str]:
    yield from (f"## {plain(part.title)}", "")
    for fact in part.facts:
        yield from (plain(fact), "")
    for table in part.tables:
        yield from (f"### {plain(table.caption)}", "", *markdown_table(table), "")
    for picture in part.pictures:
        yield from (f"![{plain(picture.caption)}]({picture.name}.svg)", "")
        yield from (plain(picture.caption), "")
    for talk in part.talks:
        yield from _beside(talk)
    for note in part.notes:
        yield from (plain(note), "")


def _beside(talk: SideBySide) -> Iterator[str]:
    yield from (f"### {plain(talk.title)}", "")
    for fact in talk.facts:
        yield from (plain(fact), "")
    for side in talk.sides:
        yield from (f"#### {plain(side.title)}", "", plain(side.facts), "")
        for who, said in side.turns:
            yield f"- **{plain(who)}**: {plain(said)}"
        yield ""


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of the table and of its footnotes."""
    yield "| " + " | ".join(plain(column.head) for column in table.columns) + " |"
    yield "|" + "|".join("---:" if column.numeric else ":---" for column in table.columns) + "|"
    for row in table.rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"
    yield ""
    for note in (*([RANKED] if table.ranked else []), *map(plain, table.notes)):
        yield from (note, "")


def _cell(cell: Cell) -> str:
    text = plain(cell.text.strip())
    if cell.error is not None:
        text += f" ± {cell.error}"
    if cell.quiet:
        return f"*{text}*"
    return {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(cell.rank, text)


def plain(text: object) -> str:
    """Return untrusted text as one line in which nothing is read as markup, link or picture."""
    line = " ".join(printable(str(text)).split())
    return "".join(
        code(part) if LINK.fullmatch(part) else _escaped(part) for part in LINK.split(line)
    )


def _escaped(text: str) -> str:
    out = "".join("\\" + c if c in "\\`*_|[]#" else c for c in text)
    return out.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(text: object) -> str:
    """Return untrusted text as an inline code span; `-` if it is empty."""
    out = " ".join(printable(str(text)).split())
    longest = max(map(len, re.findall("`+", out)), default=0)
    fence, gap = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{gap}{out}{gap}{fence}" if out else "-"
