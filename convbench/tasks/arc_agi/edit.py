"""Self-edits for tasks of grids: which tools make the training rows, and the rows."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Final, Literal

from convbench.tasks.arc_agi.grids import COLOURS, MOST_SIDE, Grid, Pair, Puzzle
from convbench.util.extract import first_object

Group = Literal["basic", "size", "chain", "repeat"]
GROUPS: Final[tuple[Group, ...]] = ("basic", "size", "chain", "repeat")
Shift = tuple[int, int]
"""Cells down and to the right."""
MOST_SHIFT = 3
Change = Callable[[Grid], Grid]


@dataclass(frozen=True)
class GridTool:
    """One way to change a grid. If `rolls`, its shift is drawn once for a whole task."""

    name: str
    group: Group
    change: Change
    undo: Change
    rolls: bool = False

    def apply(self, grid: Grid, shift: Shift = (0, 0)) -> Grid:
        """Return the changed grid."""
        return roll_cells(grid, *shift) if self.rolls else self.change(grid)

    def reverse(self, grid: Grid, shift: Shift = (0, 0)) -> Grid:
        """Return the grid from which `apply` made this one."""
        return roll_cells(grid, -shift[0], -shift[1]) if self.rolls else self.undo(grid)

    def apply_to_puzzle(self, puzzle: Puzzle, shift: Shift = (0, 0)) -> Puzzle:
        """Return a puzzle with all its grids changed."""
        return map_grids(puzzle, partial(self.apply, shift=shift))


def map_grids(puzzle: Puzzle, change: Change) -> Puzzle:
    """Return a puzzle with all its grids changed by one function."""
    shown, test = puzzle.shown, puzzle.test
    pairs = tuple(Pair(change(pair.input), change(pair.output)) for pair in (*shown, test))
    return Puzzle(pairs[:-1], pairs[-1])


def transpose_grid(grid: Grid) -> Grid:
    """Swap rows and columns."""
    return tuple(zip(*grid, strict=True))


def flip_rows(grid: Grid) -> Grid:
    """Turn upside down."""
    return grid[::-1]


def flip_columns(grid: Grid) -> Grid:
    """Mirror left and right."""
    return tuple(row[::-1] for row in grid)


def rotate_grid(grid: Grid, quarters: int) -> Grid:
    """Rotate counter-clockwise by quarter turns."""
    for _ in range(quarters % 4):
        grid = flip_rows(transpose_grid(grid))
    return grid


def roll_cells(grid: Grid, down: int, right: int) -> Grid:
    """Shift all cells; those that leave on one side enter on the other."""
    down, right = down % len(grid), right % len(grid[0])
    rolled = grid[-down:] + grid[:-down] if down else grid
    return tuple(row[-right:] + row[:-right] if right else row for row in rolled)


def stretch_cells(grid: Grid, rows: int, columns: int) -> Grid:
    """Replace every cell by a block of cells."""
    wide = tuple(tuple(cell for cell in row for _ in range(columns)) for row in grid)
    return tuple(row for row in wide for _ in range(rows))


def shrink_cells(grid: Grid, rows: int, columns: int) -> Grid:
    """Return the grid that was stretched by these factors."""
    return tuple(row[::columns] for row in grid[::rows])


def tile_grid(grid: Grid, rows: int, columns: int) -> Grid:
    """Repeat the grid down and across."""
    return tuple(row * columns for row in grid) * rows


def grid_piece(grid: Grid, rows: int, columns: int, *, last: bool = False) -> Grid:
    """Return the first of so many equal parts, or the last."""
    high, wide = len(grid) // rows, len(grid[0]) // columns
    if last:
        return tuple(row[-wide:] for row in grid[-high:])
    return tuple(row[:wide] for row in grid[:high])


def _join_mirror(grid: Grid, *, down: bool, before: bool) -> Grid:
    mirror = flip_rows(grid) if down else flip_columns(grid)
    first, second = (mirror, grid) if before else (grid, mirror)
    if down:
        return first + second
    return tuple(left + right for left, right in zip(first, second, strict=True))


_BASIC: Final[Mapping[str, tuple[Change, Change]]] = {
    "rotate-90": (partial(rotate_grid, quarters=1), partial(rotate_grid, quarters=3)),
    "rotate-180": (partial(rotate_grid, quarters=2), partial(rotate_grid, quarters=2)),
    "rotate-270": (partial(rotate_grid, quarters=3), partial(rotate_grid, quarters=1)),
    "flip-rows": (flip_rows, flip_rows),
    "flip-columns": (flip_columns, flip_columns),
    "transpose": (transpose_grid, transpose_grid),
}


def _mirror_tools() -> list[GridTool]:
    """Return four tools: mirror down or across, with the mirror image before the grid or after
    it."""
    tools = []
    for axis, down in (("rows", True), ("columns", False)):
        for position, before in (("before", True), ("after", False)):
            parts = (2, 1) if down else (1, 2)
            undo = partial(grid_piece, rows=parts[0], columns=parts[1], last=before)
            join = partial(_join_mirror, down=down, before=before)
            tools.append(GridTool(f"mirror-{axis}-{position}", "basic", join, undo))
    return tools


def _scale_tools(group: Group, names: Mapping[str, tuple[int, int]]) -> list[GridTool]:
    """Return tools that enlarge grids by these factors."""
    grow, back = (stretch_cells, shrink_cells) if group == "size" else (tile_grid, grid_piece)
    return [
        GridTool(
            name,
            group,
            partial(grow, rows=rows, columns=columns),
            partial(back, rows=rows, columns=columns),
        )
        for name, (rows, columns) in names.items()
    ]


def _chained_tool(name: str) -> GridTool:
    """Return a basic tool followed by doubling the resolution."""
    do, undo = _BASIC[name]
    return GridTool(
        f"{name}-resolution",
        "chain",
        lambda grid: stretch_cells(do(grid), 2, 2),
        lambda grid: undo(shrink_cells(grid, 2, 2)),
    )


_TWICE = {"down": (2, 1), "across": (1, 2)}
TOOLS: Final[tuple[GridTool, ...]] = (
    *(GridTool(name, "basic", *_BASIC[name]) for name in _BASIC),
    *_mirror_tools(),
    GridTool("translate", "basic", lambda grid: grid, lambda grid: grid, rolls=True),
    *_scale_tools("size", {"resolution": (2, 2), "height": (2, 1), "width": (1, 2)}),
    *(_chained_tool(name) for name in _BASIC),
    *_scale_tools(
        "repeat", {**{f"repeat-{k}": v for k, v in _TWICE.items()}, "repeat-both": (2, 2)}
    ),
)
"""All tools, in the order in which rows are made."""
BY_NAME: Final[Mapping[str, GridTool]] = {tool.name: tool for tool in TOOLS}


MOST_ROWS = 250
"""Most rows of one edit."""


def leave_out_puzzles(pairs: Sequence[Pair], removed: int) -> list[Puzzle]:
    """Return every puzzle that asks for one demonstration with `removed` of the others left out: n
    puzzles for 0, n(n - 1) for 1. With two demonstrations and 1 removed none is shown."""
    puzzles = []
    for index, test in enumerate(pairs):
        others = [pair for at, pair in enumerate(pairs) if at != index]
        for away in combinations(range(len(others)), removed):
            shown = tuple(pair for at, pair in enumerate(others) if at not in away)
            puzzles.append(Puzzle(shown, test))
    return puzzles


def augment_puzzles(
    puzzles: Iterable[Puzzle], groups: Set[Group], stream: random.Random
) -> list[Puzzle]:
    """Return the puzzles that the tools of these groups make; one with a side of more than 30 is
    dropped. The shift of `translate` is drawn for each puzzle, the same for all its grids."""
    puzzles, changed_puzzles = list(puzzles), []
    for tool in (tool for tool in TOOLS if tool.group in groups):
        for puzzle in puzzles:
            shift = (stream.randint(0, MOST_SHIFT), stream.randint(0, MOST_SHIFT))
            changed = tool.apply_to_puzzle(puzzle, shift if tool.rolls else (0, 0))
            if changed.side <= MOST_SIDE:
                changed_puzzles.append(changed)
    return changed_puzzles


def permute_colours(puzzle: Puzzle, stream: random.Random) -> Puzzle:
    """Return a puzzle with its colours permuted; 0, the background, stays."""
    order = list(range(1, COLOURS))
    stream.shuffle(order)
    colours = (0, *order)
    return map_grids(puzzle, lambda grid: tuple(tuple(colours[c] for c in row) for row in grid))


def shuffle_shown(puzzle: Puzzle, stream: random.Random) -> Puzzle:
    """Return a puzzle with its demonstrations in another order."""
    shown = list(puzzle.shown)
    stream.shuffle(shown)
    return replace(puzzle, shown=tuple(shown))


def edit_rows(
    pairs: Sequence[Pair],
    groups: Set[Group],
    seed: int,
    *,
    most: int = MOST_ROWS,
    fits: Callable[[Puzzle], bool] = lambda puzzle: True,
) -> list[Puzzle]:
    """Return the training rows of a self-edit: augmented and unchanged ones, and a copy of each
    with permuted colours (if a tool is on) and shuffled demonstrations. Duplicates are removed,
    then those that do not fit, then at most `most` are drawn by the seed."""
    stream = random.Random(f"few-shot rows {seed}")
    puzzles: dict[Puzzle, None] = {}
    for removed in (0, 1):
        base = leave_out_puzzles(pairs, removed)
        both = list(dict.fromkeys([*augment_puzzles(base, groups, stream), *base]))
        copies = [permute_colours(row, stream) if groups else row for row in both]
        puzzles |= dict.fromkeys([*(shuffle_shown(row, stream) for row in copies), *both])
    fitting = [row for row in puzzles if fits(row)]
    stream.shuffle(fitting)
    return fitting[:most]


Strategy = Literal["train_using_all_tokens", "train_using_output_tokens"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("train_using_all_tokens", "train_using_output_tokens")
SWITCHES: Final[Mapping[str, Group]] = {f"use_{group}_augmentations": group for group in GROUPS}
MOST_STEPS = 375
"""A self-edit that asks for more than this many `epochs * rows // 2` is not trained on."""


class InvalidEdit(ValueError):
    """A text does not ask for a valid self-edit; the message says why."""


@dataclass(frozen=True)
class SelfEdit:
    """Settings that a self-edit asks for."""

    groups: frozenset[Group]
    strategy: Strategy
    learning_rate: float
    epochs: int

    def count_steps(self, rows: int) -> int:
        """Return the number of training steps that the guard counts, in batches of two."""
        return self.epochs * rows // 2

    def to_json(self) -> str:
        """Return the JSON that a policy would write."""
        return json.dumps(
            {
                "data_generation": {name: group in self.groups for name, group in SWITCHES.items()},
                "training": {
                    "strategy": self.strategy,
                    "learning_rate": self.learning_rate,
                    "num_train_epochs": self.epochs,
                },
            }
        )


def parse_edit(text: str) -> SelfEdit:
    """Return the settings that the first JSON object of a text asks for. Raises NoEdit if it is no
    valid edit."""
    edit = first_object(text)
    if edit is None:
        raise InvalidEdit("found no JSON object")
    data, training = edit.get("data_generation"), edit.get("training")
    if not isinstance(data, Mapping) or not isinstance(training, Mapping):
        raise InvalidEdit("expected the keys data_generation and training, each an object")
    groups = {group for name, group in SWITCHES.items() if _get_switch(data, name)}
    strategy = _get_key(training, "strategy")
    if strategy not in STRATEGIES:
        raise InvalidEdit(
            f"strategy: found {str(strategy)[:40]!r}; expected {' or '.join(STRATEGIES)}"
        )
    rate, epochs = _get_key(training, "learning_rate"), _get_key(training, "num_train_epochs")
    if type(rate) not in (int, float) or not math.isfinite(rate) or not 0 < rate <= 1:
        raise InvalidEdit(
            f"learning_rate: found {str(rate)[:40]}; expected a number above 0, at most 1"
        )
    if type(epochs) is not int or epochs < 1:
        raise InvalidEdit(
            f"num_train_epochs: found {str(epochs)[:40]}; expected a whole number from 1"
        )
    return SelfEdit(frozenset(groups), strategy, float(rate), epochs)


def _get_key(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise InvalidEdit(f"found no {name}")
    return values[name]


def _get_switch(values: Mapping[str, Any], name: str) -> bool:
    value = _get_key(values, name)
    if type(value) is not bool:
        raise InvalidEdit(f"{name}: found {str(value)[:40]}; expected true or false")
    return value


ORACLE: Final = SelfEdit(frozenset(GROUPS), "train_using_output_tokens", 1e-4, 2)
"""The best known settings: all tools, output tokens, rate 1e-4, 2 epochs."""
