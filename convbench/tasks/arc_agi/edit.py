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

from convbench.answers.plain import first_object
from convbench.tasks.arc_agi.grids import COLOURS, SIDE, Grid, Pair, Puzzle

Group = Literal["basic", "size", "chain", "repeat"]
GROUPS: Final[tuple[Group, ...]] = ("basic", "size", "chain", "repeat")
Shift = tuple[int, int]
"""Cells down and to the right."""
MOST_SHIFT = 3
Change = Callable[[Grid], Grid]


@dataclass(frozen=True)
class Tool:
    """One way to change a grid. If `rolls`, its shift is drawn once for a whole task."""

    name: str
    group: Group
    change: Change
    undo: Change
    rolls: bool = False

    def apply(self, grid: Grid, shift: Shift = (0, 0)) -> Grid:
        """Return the changed grid."""
        return roll(grid, *shift) if self.rolls else self.change(grid)

    def back(self, grid: Grid, shift: Shift = (0, 0)) -> Grid:
        """Return the grid from which `apply` made this one."""
        return roll(grid, -shift[0], -shift[1]) if self.rolls else self.undo(grid)

    def over(self, puzzle: Puzzle, shift: Shift = (0, 0)) -> Puzzle:
        """Return a puzzle with all its grids changed."""
        return every(puzzle, partial(self.apply, shift=shift))


def every(puzzle: Puzzle, change: Change) -> Puzzle:
    """Return a puzzle with all its grids changed by one function."""
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
    """Rotate counter-clockwise by quarter turns."""
    for _ in range(quarters % 4):
        grid = flip_rows(transpose(grid))
    return grid


def roll(grid: Grid, down: int, right: int) -> Grid:
    """Shift all cells; those that leave on one side enter on the other."""
    down, right = down % len(grid), right % len(grid[0])
    moved = grid[-down:] + grid[:-down] if down else grid
    return tuple(row[-right:] + row[:-right] if right else row for row in moved)


def stretch(grid: Grid, rows: int, columns: int) -> Grid:
    """Replace every cell by a block of cells."""
    wide = tuple(tuple(cell for cell in row for _ in range(columns)) for row in grid)
    return tuple(row for row in wide for _ in range(rows))


def shrink(grid: Grid, rows: int, columns: int) -> Grid:
    """Return the grid that was stretched by these factors."""
    return tuple(row[::columns] for row in grid[::rows])


def tile(grid: Grid, rows: int, columns: int) -> Grid:
    """Repeat the grid down and across."""
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
    """Return four tools: mirror down or across, with the mirror image before the grid or after
    it."""
    tools = []
    for axis, down in (("rows", True), ("columns", False)):
        for place, before in (("before", True), ("after", False)):
            parts = (2, 1) if down else (1, 2)
            undo = partial(piece, rows=parts[0], columns=parts[1], last=before)
            join = partial(_joined, down=down, before=before)
            tools.append(Tool(f"mirror-{axis}-{place}", "basic", join, undo))
    return tools


def _factors(group: Group, names: Mapping[str, tuple[int, int]]) -> list[Tool]:
    """Return tools that enlarge grids by these factors."""
    grow, back = (stretch, shrink) if group == "size" else (tile, piece)
    return [
        Tool(
            name,
            group,
            partial(grow, rows=rows, columns=columns),
            partial(back, rows=rows, columns=columns),
        )
        for name, (rows, columns) in names.items()
    ]


def _chain(name: str) -> Tool:
    """Return a basic tool followed by doubling the resolution."""
    do, undo = _PLAIN[name]
    return Tool(
        f"{name}-resolution",
        "chain",
        lambda grid: stretch(do(grid), 2, 2),
        lambda grid: undo(shrink(grid, 2, 2)),
    )


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


MOST = 250
"""Most rows of one edit."""


def left_out(pairs: Sequence[Pair], removed: int) -> list[Puzzle]:
    """Return every puzzle that asks for one demonstration with `removed` of the others left out: n
    puzzles for 0, n(n - 1) for 1. With two demonstrations and 1 removed none is shown."""
    found = []
    for place, test in enumerate(pairs):
        others = [one for at, one in enumerate(pairs) if at != place]
        for away in combinations(range(len(others)), removed):
            shown = tuple(one for at, one in enumerate(others) if at not in away)
            found.append(Puzzle(shown, test))
    return found


def augmented(plain: Iterable[Puzzle], groups: Set[Group], stream: random.Random) -> list[Puzzle]:
    """Return the puzzles that the tools of these groups make; one with a side of more than 30 is
    dropped. The shift of `translate` is drawn for each puzzle, the same for all its grids."""
    plain, found = list(plain), []
    for tool in (tool for tool in TOOLS if tool.group in groups):
        for puzzle in plain:
            shift = (stream.randint(0, MOST_SHIFT), stream.randint(0, MOST_SHIFT))
            changed = tool.over(puzzle, shift if tool.rolls else (0, 0))
            if changed.side <= SIDE:
                found.append(changed)
    return found


def recoloured(puzzle: Puzzle, stream: random.Random) -> Puzzle:
    """Return a puzzle with its colours permuted; 0, the background, stays."""
    order = list(range(1, COLOURS))
    stream.shuffle(order)
    colours = (0, *order)
    return every(puzzle, lambda one: tuple(tuple(colours[c] for c in row) for row in one))


def shuffled(puzzle: Puzzle, stream: random.Random) -> Puzzle:
    """Return a puzzle with its demonstrations in another order."""
    shown = list(puzzle.shown)
    stream.shuffle(shown)
    return replace(puzzle, shown=tuple(shown))


def rows(
    pairs: Sequence[Pair],
    groups: Set[Group],
    seed: int,
    *,
    most: int = MOST,
    fits: Callable[[Puzzle], bool] = lambda puzzle: True,
) -> list[Puzzle]:
    """Return the training rows of a self-edit: augmented and unchanged ones, and a copy of each
    with permuted colours (if a tool is on) and shuffled demonstrations. Duplicates are removed,
    then those that do not fit, then at most `most` are drawn by the seed."""
    stream = random.Random(f"few-shot rows {seed}")
    found: dict[Puzzle, None] = {}
    for removed in (0, 1):
        plain = left_out(pairs, removed)
        both = list(dict.fromkeys([*augmented(plain, groups, stream), *plain]))
        copies = [recoloured(one, stream) if groups else one for one in both]
        found |= dict.fromkeys([*(shuffled(one, stream) for one in copies), *both])
    kept = [one for one in found if fits(one)]
    stream.shuffle(kept)
    return kept[:most]


Strategy = Literal["train_using_all_tokens", "train_using_output_tokens"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("train_using_all_tokens", "train_using_output_tokens")
SWITCHES: Final[Mapping[str, Group]] = {f"use_{group}_augmentations": group for group in GROUPS}
MOST_STEPS = 375
"""A self-edit that asks for more than this many `epochs * rows // 2` is not trained on."""


class NoEdit(ValueError):
    """A text does not ask for a valid self-edit; the message says why."""


@dataclass(frozen=True)
class SelfEdit:
    """Settings that a self-edit asks for."""

    groups: frozenset[Group]
    strategy: Strategy
    learning_rate: float
    epochs: int

    def steps(self, rows: int) -> int:
        """Return the number of training steps that the guard counts, in batches of two."""
        return self.epochs * rows // 2

    def written(self) -> str:
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


def self_edit(text: str) -> SelfEdit:
    """Return the settings that the first JSON object of a text asks for. Raises NoEdit if it is no
    valid edit."""
    found = first_object(text)
    if found is None:
        raise NoEdit("found no JSON object")
    data, training = found.get("data_generation"), found.get("training")
    if not isinstance(data, Mapping) or not isinstance(training, Mapping):
        raise NoEdit("expected the keys data_generation and training, each an object")
    groups = {group for name, group in SWITCHES.items() if _switch(data, name)}
    strategy = _of(training, "strategy")
    if strategy not in STRATEGIES:
        raise NoEdit(f"strategy: found {str(strategy)[:40]!r}; expected {' or '.join(STRATEGIES)}")
    rate, epochs = _of(training, "learning_rate"), _of(training, "num_train_epochs")
    if type(rate) not in (int, float) or not math.isfinite(rate) or not 0 < rate <= 1:
        raise NoEdit(f"learning_rate: found {str(rate)[:40]}; expected a number above 0, at most 1")
    if type(epochs) is not int or epochs < 1:
        raise NoEdit(f"num_train_epochs: found {str(epochs)[:40]}; expected a whole number from 1")
    return SelfEdit(frozenset(groups), strategy, float(rate), epochs)


def _of(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise NoEdit(f"found no {name}")
    return values[name]


def _switch(values: Mapping[str, Any], name: str) -> bool:
    value = _of(values, name)
    if type(value) is not bool:
        raise NoEdit(f"{name}: found {str(value)[:40]}; expected true or false")
    return value


ORACLE: Final = SelfEdit(frozenset(GROUPS), "train_using_output_tokens", 1e-4, 2)
"""The best known settings: all tools, output tokens, rate 1e-4, 2 epochs."""
