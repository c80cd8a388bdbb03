"""A table in LaTeX that keeps its size: errors go below their means where the page is narrow, and
columns that find no room beside the others stand in a second table below."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from convbench.report.document import Cell, Table


@dataclass(frozen=True, slots=True)
class Room:
    """What a table may take: TeX points of the line, of a character and between two columns, at
    this size of type."""

    line: float
    character: float
    between: float
    size: str
    short: bool
    """Whether heads are the short ones."""


ROOMS = {
    "one": Room(216, 4.6, 6, "\\footnotesize\\setlength{\\tabcolsep}{3pt}", short=True),
    "two": Room(455, 4.9, 12, "\\small", short=False),
}
"""By the columns of a page of two that a table may be wide. Narrow as in the narrowest styles (a
column of 7.6 cm), and counted for wide letters: a table is split a little early."""
KEY, TEXT = 0.3, 0.55
"""Shares of the line that the first column and any other text may take before they are set as
paragraphs."""
MOST = 3
"""Columns at most that stand in each part of a split table."""
PIECE = 8
"""Characters of a word in a paragraph after which it may break."""
_SIGN = re.compile(r"(?<![\w.])([+-])(?=[\d.])")


def tabular(table: Table, room: Room, escaped: Callable[[str], str]) -> Iterator[str]:
    """Yield the tables that hold this one's columns, each with those that tell its rows apart;
    `escaped` makes text LaTeX's."""
    stacked = False
    widths = _widths(table, room, stacked)
    if sum(widths) > room.line:
        stacked = True
        widths = _widths(table, room, stacked)
    keys = _keys(table)
    for number, block in enumerate(_blocks(widths, room.line, keys)):
        if number:
            yield "\\par\\medskip"
        yield from _block(table, [*range(keys), *block], room, stacked, escaped)


def _keys(table: Table) -> int:
    """Return how many of the first columns it takes to tell the rows apart: the method, say, and
    the temperature; one where a few do not."""
    for number in range(1, min(MOST, len(table.columns) - 1) + 1):
        if len({tuple(c.text for c in row[:number]) for row in table.rows}) == len(table.rows):
            return number
    return 1


def _text(cell: Cell, stacked: bool) -> str:
    return cell.text if stacked or cell.error is None else f"{cell.text} ± {cell.error}"


def _widths(table: Table, room: Room, stacked: bool) -> list[float]:
    """Return each column's width in points, its distance to the next included."""
    out = []
    for place, column in enumerate(table.columns):
        head = column.short if room.short else column.head
        texts = [head, *(_text(row[place], stacked) for row in table.rows)]
        width = max(map(len, texts)) * room.character
        most = width if column.numeric else room.line * (TEXT if place else KEY)
        out.append(min(width, most) + room.between)
    return out


def _blocks(widths: Sequence[float], line: float, keys: int) -> list[list[int]]:
    """Return the columns of each table beside its first, as many as there is room for."""
    blocks: list[list[int]] = [[]]
    used = first = sum(widths[:keys])
    for place, width in enumerate(widths[keys:], keys):
        if blocks[-1] and used + width > line:
            blocks.append([])
            used = first
        blocks[-1].append(place)
        used += width
    return blocks


def _block(
    table: Table, shown: Sequence[int], room: Room, stacked: bool, escaped: Callable[[str], str]
) -> Iterator[str]:
    # The width was counted, not measured: a table that is a little wider after all is scaled.
    yield "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
    yield f"\\begin{{tabular}}{{{''.join(_kind(table, place, room) for place in shown)}}}"
    yield "\\toprule"
    columns = [table.columns[place] for place in shown]
    yield " & ".join(escaped(c.short if room.short else c.head) for c in columns) + " \\\\"
    yield "\\midrule"
    for row in table.rows:
        cells = [row[place] for place in shown]
        kinds = [_kind(table, place, room) for place in shown]
        pairs = zip(cells, kinds, strict=True)
        yield " & ".join(_cell(c, kind, stacked, escaped) for c, kind in pairs) + " \\\\"
        if stacked and any(cell.error is not None for cell in cells):
            below = ("" if c.error is None else f"{{\\scriptsize $\\pm$ {c.error}}}" for c in cells)
            yield " & ".join(below) + " \\\\"
    yield from ("\\bottomrule", "\\end{tabular}}")


def _kind(table: Table, place: int, room: Room) -> str:
    """Return a column's kind: long text is set as a paragraph."""
    if table.columns[place].numeric:
        return "r"
    longest = max((len(row[place].text) for row in table.rows), default=0)
    share = TEXT if place else KEY
    if longest * room.character <= share * room.line:
        return "l"
    return f">{{\\raggedright\\arraybackslash}}p{{{share}\\linewidth}}"


def _cell(cell: Cell, kind: str, stacked: bool, escaped: Callable[[str], str]) -> str:
    indent = "\\quad " if cell.text.startswith("  ") else ""
    words = cell.text.strip().split(" ")
    if kind in ("l", "r"):
        text = escaped(" ".join(words))
    else:  # a paragraph, whose long words may break
        pieces = ([w[i : i + PIECE] for i in range(0, len(w), PIECE)] or [""] for w in words)
        text = " ".join("\\hskip0pt{}".join(map(escaped, some)) for some in pieces)
    if kind == "r":
        text = _SIGN.sub(r"$\1$", text)
    if cell.error is not None and not stacked:
        text += f" $\\pm$ {cell.error}"
    if cell.quiet:
        return f"{indent}\\textit{{{text}}}"
    return {1: f"\\textbf{{{text}}}", 2: f"\\underline{{{text}}}"}.get(cell.rank, text)
