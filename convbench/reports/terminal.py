"""A report on a terminal. Tables adapt to its width: short heads, errors on a second line, and as
a last resort split by columns. Marks do not need colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from convbench.reports.document import Cell, Document, ReportPart, Table

STYLES = {0: "", 1: "bold", 2: "underline"}
MARKS = {0: "", 1: "*", 2: "+"}
GAP = 2
"""Spaces between two cells."""
_WORD = re.compile(r"(?:^ +)?\S+", re.MULTILINE)
"""A word, with the indentation of a line before its first."""
ENDLESS = 10**6
"""A width in which everything fits."""


def render_terminal(document: Document, console: Console) -> Iterator[RenderableType]:
    """Yield what `rich` is to print: titles, facts, tables and notes, without pictures and
    conversations.

    A part without tables is left out if it has conversations or no facts. If the console is no
    terminal (a pipe), `*` marks the best of a column and `+` the second best.
    """
    for part in document.parts:
        if part.tables or (part.facts and not part.talks):  # no heading over what is not printed
            yield from _render_part(part, console)


def _render_part(part: ReportPart, console: Console) -> Iterator[RenderableType]:
    unstyled = not console.is_terminal
    yield Text(part.title, style="bold underline")
    for fact in part.facts:
        yield Text(fact)
    for table in part.tables:
        yield Text(table.caption, style="bold")
        yield from render_table(table, console.width, unstyled)
        yield _render_notes(table, unstyled)
    for note in part.notes:
        yield Text(note, style="dim")


def render_table(table: Table, width: int, unstyled: bool) -> Iterator[RenderableType]:
    """Yield the table for `rich`, in its short form if it is wider than `width` characters.

    If even that would break words, yield several tables with some of the columns each, all with the
    columns that name the rows. `unstyled` marks the best with `*` and the second best with `+`.
    """
    for narrow in (False, True):
        cells = [[_rich_cell(cell, unstyled, narrow) for cell in row] for row in table.rows]
        heads = [Text(column.short if narrow else column.head) for column in table.columns]
        gap = 1 if narrow else GAP
        widths = _column_widths([heads, *cells], width, gap)
        if not narrow and widths == _column_widths([heads, *cells], ENDLESS, gap):
            break
    rows = [heads, *cells]
    for part in [range(len(heads))] if widths else _column_parts(table, rows, width, gap):
        own = [[row[index] for index in part] for row in rows]
        yield _rich_table(table, part, own, gap, _column_widths(own, width, gap))


def _rich_table(
    table: Table,
    part: Sequence[int],
    rows: Sequence[list[Text]],
    gap: int,
    widths: list[int] | None,
) -> RenderableType:
    """Return a rich table of the columns with these indices; the first row holds the heads."""
    out = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for number, index in enumerate(part):
        justify: Literal["right", "left"] = "right" if table.columns[index].numeric else "left"
        own = widths[number] if widths else None
        out.add_column(rows[0][number], justify=justify, overflow="fold", width=own)
    for row in rows[1:]:
        out.add_row(*row)
    return out


def _column_parts(
    table: Table, rows: list[list[Text]], width: int, gap: int
) -> Iterator[list[int]]:
    """Yield the column indices of each part: those that name the rows, and as many others as fit,
    at least one."""
    names = next((n for n, column in enumerate(table.columns) if column.numeric), 1) or 1
    part = list(range(names))
    for index in range(names, len(table.columns)):
        more = [*part, index]
        fits = (
            _column_widths([[row[position] for position in more] for row in rows], width, gap)
            is not None
        )
        if not fits and len(part) > names:
            yield part
            more = [*range(names), index]
        part = more
    yield part


def _column_widths(rows: list[list[Text]], width: int, gap: int) -> list[int] | None:
    """Return the columns' widths, None if a word would have to break. Each column gets its longest
    word, then as much of its text as there is space, from the left, cells before heads. The first
    row holds the heads."""
    columns = list(zip(*rows, strict=True))
    out = [max(_longest_width(_WORD.findall(cell.plain)) for cell in column) for column in columns]
    spare = width - sum(out) - gap * (len(columns) - 1)
    if spare < 0:
        return None
    for first in (1, 0):  # widen for the cells first, then for the heads
        for index, column in enumerate(columns):
            natural_width = max(
                (_longest_width(c.plain.split("\n")) for c in column[first:]), default=0
            )
            more = min(max(natural_width - out[index], 0), spare)
            spare -= more
            out[index] += more
    return out


def _longest_width(parts: list[str]) -> int:
    return max(map(cell_len, parts), default=0)


def _rich_cell(cell: Cell, unstyled: bool, narrow: bool) -> Text:
    """Return a cell's text; a narrow cell has its error on a second line."""
    text = Text(cell.text, style="dim" if cell.quiet else STYLES[cell.rank])
    if unstyled:
        text.append(MARKS[cell.rank])
    if cell.error is not None:
        text.append(f"\n±{cell.error}" if narrow else f" ± {cell.error}", style="not bold")
    return text


def _render_notes(table: Table, unstyled: bool) -> Group:
    marks = "Best *, second +." if unstyled else "Best bold, second underlined."
    notes = ([marks] if table.has_ranks else []) + list(table.notes)
    return Group(*(Text(note, style="dim") for note in notes), Text(""))
