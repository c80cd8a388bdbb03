"""A report on a terminal: wide tables at 200 columns, narrow ones at 80, marks without colour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from convbench.report.document import Cell, Document, Part, Table

STYLES = {0: "", 1: "bold", 2: "underline"}
MARKS = {0: "", 1: "*", 2: "+"}
GAP = 2
"""Columns of space between two cells."""
LONGEST = 24
"""Longest name that a narrow table never breaks."""


def terminal(document: Document, console: Console) -> Iterator[RenderableType]:
    """Yield what to print. Where the console has no styles (a pipe), `*` marks the best of a
    column and `+` the second."""
    for part in document.parts:
        if part.tables or part.facts:  # no heading over pictures alone
            yield from _part(part, console)


def _part(part: Part, console: Console) -> Iterator[RenderableType]:
    plain = not console.is_terminal
    yield Text(part.title, style="bold underline")
    for fact in part.facts:
        yield Text(fact)
    for table in part.tables:
        yield Text(table.caption, style="bold")
        yield _table(table, console.width, plain)
        yield _notes(table, plain)
    for note in part.notes:
        yield Text(note, style="dim")


def _table(table: Table, width: int, plain: bool) -> RenderableType:
    for narrow in (False, True):
        cells = [[_cell(cell, plain, narrow) for cell in row] for row in table.rows]
        heads = [column.short if narrow else column.head for column in table.columns]
        if _width(heads, cells) <= width:
            break
    out = RichTable(box=None, pad_edge=False, padding=(0, GAP if not narrow else 1, 0, 0))
    names = max((cell[0].cell_len for cell in cells), default=0)
    for place, (column, head) in enumerate(zip(table.columns, heads, strict=True)):
        kept = not narrow or (place == 0 and names <= LONGEST)
        justify: Literal["right", "left"] = "right" if column.numeric else "left"
        out.add_column(Text(head), justify=justify, overflow="fold", no_wrap=kept)
    for row in cells:
        out.add_row(*row)
    return out


def _width(heads: list[str], rows: list[list[Text]]) -> int:
    """Width of the whole table when nothing wraps."""
    columns = zip(*([[Text(head) for head in heads], *rows]), strict=True)
    return sum(max(cell.cell_len for cell in column) + GAP for column in columns)


def _cell(cell: Cell, plain: bool, narrow: bool) -> Text:
    """Return a cell; a narrow one has its error on a second line."""
    text = Text(cell.text, style="dim" if cell.quiet else STYLES[cell.rank])
    if plain:
        text.append(MARKS[cell.rank])
    if cell.error is not None:
        text.append(f"\n±{cell.error}" if narrow else f" ± {cell.error}", style="not bold")
    return text


def _notes(table: Table, plain: bool) -> Group:
    marks = "Best *, second +." if plain else "Best bold, second underlined."
    notes = ([marks] if table.ranked else []) + list(table.notes)
    return Group(*(Text(note, style="dim") for note in notes), Text(""))
