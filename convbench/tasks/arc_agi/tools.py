"""The 23 tools of a self-edit: each changes every grid of a task in one way that can be undone.

Zweiger et al. 2025 (SEAL), few-shot learning: 11 basic ones, 3 of size, 6 chains of both, 3 that
repeat. A tool goes over inputs and outputs of all demonstrations, so that the rule becomes another
one of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle

Group = Literal["basic", "size", "chain", "repeat"]
GROUPS: Final[tuple[Group, ...]] = ("basic", "size", "chain", "repeat")
Shift = tuple[int, int]
"""Cells down and to the right."""
MOST_SHIFT = 3
Change = Callable[[Grid], Grid]


@dataclass(frozen=True)
class Tool:
    """One way to change a grid. `rolls`: by how much is drawn once for a whole task."""

    name: str
    group: Group
    change: Change
    undo: Change
    rolls: bool = False

    def apply(self, grid: Grid, shift: Shift = (0, 0)) -> Grid:
        """Return the changed grid."""
        return roll(grid, *shift) if self.rolls else self.change(grid)

    def back(self, grid: Grid, shift: Shift = (0, 0)) -> Grid:
        """Return the grid that `apply` made this of."""
        return roll(grid, -shift[0], -shift[1]) if self.rolls else self.undo(grid)

    def over(self, puzzle: Puzzle, shift: Shift = (0, 0)) -> Puzzle:
        """Return a puzzle with all its grids changed."""
        return every(puzzle, partial(self.apply, shift=shift))


def every(puzzle: Puzzle, change: Change) -> Puzzle:
    """Return a puzzle with all its grids changed in one way."""
    shown, test = puzzle.shown, puzzle.test
    pairs = tuple(Pair(change(one.input), change(one.output)) for one in (*shown, test))
    return Puzzle(pairs[:-1], pairs[-1])


def transpose(grid: Grid) -> Grid:
    """Swap rows and columns."""
    return tuple(zip(*grid, strict=True))


def flip_rows(grid: Grid) -> Grid:
    """Turn upside down."""
    return grid[::-1]


def flip_columns(grid: Grid) -> Grid:
    """Mirror left and right."""
    return tuple(row[::-1] for row in grid)


def rotate(grid: Grid, quarters: int) -> Grid:
    """Turn counter-clockwise by quarters of a circle."""
    for _ in range(quarters % 4):
        grid = flip_rows(transpose(grid))
    return grid


def roll(grid: Grid, down: int, right: int) -> Grid:
    """Move all cells; what leaves on one side comes in on the other."""
    down, right = down % len(grid), right % len(grid[0])
    moved = grid[-down:] + grid[:-down] if down else grid
    return tuple(row[-right:] + row[:-right] if right else row for row in moved)


def stretch(grid: Grid, rows: int, columns: int) -> Grid:
    """Make every cell a block of cells."""
    wide = tuple(tuple(cell for cell in row for _ in range(columns)) for row in grid)
    return tuple(row for row in wide for _ in range(rows))


def shrink(grid: Grid, rows: int, columns: int) -> Grid:
    """Undo `stretch`."""
    return tuple(row[::columns] for row in grid[::rows])


def tile(grid: Grid, rows: int, columns: int) -> Grid:
    """Lay the grid beside itself."""
    return tuple(row * columns for row in grid) * rows


def piece(grid: Grid, rows: int, columns: int, *, last: bool = False) -> Grid:
    """Return the first of so many equal parts, or the last."""
    high, wide = len(grid) // rows, len(grid[0]) // columns
    if last:
        return tuple(row[-wide:] for row in grid[-high:])
    return tuple(row[:wide] for row in grid[:high])


def _joined(grid: Grid, *, down: bool, before: bool) -> Grid:
    mirror = flip_rows(grid) if down else flip_columns(grid)
    first, second = (mirror, grid) if before else (grid, mirror)
    if down:
        return first + second
    return tuple(left + right for left, right in zip(first, second, strict=True))


_PLAIN: Final[Mapping[str, tuple[Change, Change]]] = {
    "rotate-90": (partial(rotate, quarters=1), partial(rotate, quarters=3)),
    "rotate-180": (partial(rotate, quarters=2), partial(rotate, quarters=2)),
    "rotate-270": (partial(rotate, quarters=3), partial(rotate, quarters=1)),
    "flip-rows": (flip_rows, flip_rows),
    "flip-columns": (flip_columns, flip_columns),
    "transpose": (transpose, transpose),
}


def _reflections() -> list[Tool]:
    """Return the four: mirrored down or across, the mirror image before the grid or after it."""
    tools = []
    for axis, down in (("rows", True), ("columns", False)):
        for place, before in (("before", True), ("after", False)):
            parts = (2, 1) if down else (1, 2)
            undo = partial(piece, rows=parts[0], columns=parts[1], last=before)
            join = partial(_joined, down=down, before=before)
            tools.append(Tool(f"mirror-{axis}-{place}", "basic", join, undo))
    return tools


def _factors(group: Group, names: Mapping[str, tuple[int, int]]) -> list[Tool]:
    """Return tools that make grids larger by these factors."""
    grow, back = (stretch, shrink) if group == "size" else (tile, piece)
    return [
        Tool(name, group, partial(grow, rows=rows, columns=columns),
             partial(back, rows=rows, columns=columns))
        for name, (rows, columns) in names.items()
    ]  # fmt: skip


def _chain(name: str) -> Tool:
    """Return a plain tool followed by twice the resolution."""
    do, undo = _PLAIN[name]
    return Tool(
        f"{name}-resolution", "chain",
        lambda grid: stretch(do(grid), 2, 2), lambda grid: undo(shrink(grid, 2, 2)),
    )  # fmt: skip


_TWICE = {"down": (2, 1), "across": (1, 2)}
TOOLS: Final[tuple[Tool, ...]] = (
    *(Tool(name, "basic", *_PLAIN[name]) for name in _PLAIN),
    *_reflections(),
    Tool("translate", "basic", lambda grid: grid, lambda grid: grid, rolls=True),
    *_factors("size", {"resolution": (2, 2), "height": (2, 1), "width": (1, 2)}),
    *(_chain(name) for name in _PLAIN),
    *_factors("repeat", {**{f"repeat-{k}": v for k, v in _TWICE.items()}, "repeat-both": (2, 2)}),
)
"""All tools, in the order in which rows are made."""
BY_NAME: Final[Mapping[str, Tool]] = {tool.name: tool for tool in TOOLS}
