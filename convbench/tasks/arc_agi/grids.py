"""Grids of coloured cells: what they may be, and how they stand in a text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Grid = tuple[tuple[int, ...], ...]
"""Rows from the top, cells from the left; colours 0 to 9."""
Style = Literal["lists", "digits", "places"]
"""How a grid is written: `[[0, 1], [2, 3]]`; a row of digits a line; or every cell with its place,
`r1c1=0 r1c2=1 r2c1=2 r2c2=3`."""
SIDE = 30
"""Most cells of a side."""
COLOURS = 10


@dataclass(frozen=True, slots=True)
class Pair:
    """An input and the output that the task's rule makes of it."""

    input: Grid
    output: Grid

    @property
    def side(self) -> int:
        """The longest side of both."""
        return max(len(self.input), len(self.input[0]), len(self.output), len(self.output[0]))


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One question: demonstrations, and a test pair whose output is wanted."""

    shown: tuple[Pair, ...]
    test: Pair

    @property
    def side(self) -> int:
        """The longest side of all grids."""
        return max(pair.side for pair in (*self.shown, self.test))


def grid(value: Any) -> Grid:
    """Return nested lists as a grid; ValueError says what is wrong with them."""
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= SIDE:
        raise ValueError(f"a grid has 1 to {SIDE} rows")
    rows = []
    for row in value:
        if not isinstance(row, (list, tuple)) or not 1 <= len(row) <= SIDE:
            raise ValueError(f"a row has 1 to {SIDE} cells")
        if len(row) != len(value[0]):
            raise ValueError("rows differ in length")
        if any(type(cell) is not int or not 0 <= cell < COLOURS for cell in row):
            raise ValueError("a cell is a whole number from 0 to 9")
        rows.append(tuple(row))
    return tuple(rows)


def pair(value: Mapping[str, Any]) -> Pair:
    """Return a mapping with `input` and `output` as a pair; ValueError where it is none."""
    if not isinstance(value, Mapping) or not {"input", "output"} <= set(value):
        raise ValueError("a pair has an input and an output")
    return Pair(grid(value["input"]), grid(value["output"]))


def written(one: Grid, style: Style = "lists") -> str:
    """Return a grid as text."""
    if style == "lists":
        return json.dumps([list(row) for row in one])
    if style == "places":
        return " ".join(
            f"r{down}c{right}={cell}"
            for down, row in enumerate(one, 1)
            for right, cell in enumerate(row, 1)
        )
    return "\n".join("".join(map(str, row)) for row in one)


_LISTS = re.compile(r"(?P<grid>\[\s*+\[[\d,\s\[\]]*\]\s*+\])|\[\s*+\[[\d,\s\[\]]*+")
_DIGITS = re.compile(r"(?P<grid>\d+(?:\n\d+)*)")
_PLACES = re.compile(r"(?P<grid>r\d\d?c\d\d?=\d(?: r\d\d?c\d\d?=\d)*)")
_FINDS = {"lists": _LISTS, "digits": _DIGITS, "places": _PLACES}


def read(text: str, style: Style = "lists") -> Grid | None:
    """Return the first grid that a text holds; None where there is none that is one."""
    tried = _FINDS[style].finditer(text[:20_000])
    found = next((one["grid"] for one in tried if one["grid"]), None)
    if found is None:
        return None
    try:
        if style == "lists":
            return grid(json.loads(found))
        if style == "places":
            return _placed(found)
        return grid([[int(cell) for cell in row] for row in found.split("\n")])
    except ValueError:
        return None


def _placed(text: str) -> Grid | None:
    """Return the grid of cells that are named one by one, in order and without gaps."""
    cells = [tuple(map(int, one)) for one in re.findall(r"r(\d+)c(\d+)=(\d)", text)]
    wide = max(right for _, right, _ in cells)
    rows = [cells[start : start + wide] for start in range(0, len(cells), wide)]
    found = grid([[cell for _, _, cell in row] for row in rows])
    return found if written(found, "places") == text else None
