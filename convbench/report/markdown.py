"""A report as Markdown: GitHub tables, best bold, second underlined."""

from __future__ import annotations

import re
from collections.abc import Iterator

from convbench.printable import make_printable
from convbench.report.document import Cell, Document, ReportPart, SideBySide, Table

LINK = re.compile(r"(?i)((?:[a-z][a-z0-9+.-]{0,30}://|www\.)[^\s|`]+)")
"""Text that Markdown renderers turn into a link by themselves, unless it is code."""
RANKED = "Best **bold**, second <u>underlined</u>."


def render_markdown(document: Document) -> str:
    """Return the report as Markdown; pictures are linked as `NAME.svg`."""
    lines = [f"# {inline_text(document.title)}", ""]
    for part in document.parts:
        lines += _markdown_part(part)
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


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of the table and of its footnotes."""
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
