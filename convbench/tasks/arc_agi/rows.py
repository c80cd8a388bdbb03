"""From a task's demonstrations to the rows that a self-edit trains on.

Zweiger et al. 2025 (SEAL), few-shot learning, after the test-time training of Akyürek et al.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from itertools import combinations

from convbench.tasks.arc_agi.grids import COLOURS, SIDE, Pair, Puzzle
from convbench.tasks.arc_agi.tools import MOST_SHIFT, TOOLS, Group, every

MOST = 250
"""Rows of one edit."""


def left_out(pairs: Sequence[Pair], removed: int) -> list[Puzzle]:
    """Return every way to ask for one demonstration with `removed` of the others away: n rows for
    0, n(n - 1) for 1. With two demonstrations and 1 removed nothing is shown."""
    found = []
    for place, test in enumerate(pairs):
        others = [one for at, one in enumerate(pairs) if at != place]
        for away in combinations(range(len(others)), removed):
            shown = tuple(one for at, one in enumerate(others) if at not in away)
            found.append(Puzzle(shown, test))
    return found


def augmented(plain: Iterable[Puzzle], groups: Set[Group], stream: random.Random) -> list[Puzzle]:
    """Return what the tools of these groups make of rows; a row with a side of more than 30 is
    dropped. How far `translate` moves is drawn row by row, the same for all grids of one."""
    plain, found = list(plain), []
    for tool in (tool for tool in TOOLS if tool.group in groups):
        for puzzle in plain:
            shift = (stream.randint(0, MOST_SHIFT), stream.randint(0, MOST_SHIFT))
            changed = tool.over(puzzle, shift if tool.rolls else (0, 0))
            if changed.side <= SIDE:
                found.append(changed)
    return found


def recoloured(puzzle: Puzzle, stream: random.Random) -> Puzzle:
    """Return a row with its colours permuted; 0, the background, stays."""
    order = list(range(1, COLOURS))
    stream.shuffle(order)
    colours = (0, *order)
    return every(puzzle, lambda one: tuple(tuple(colours[c] for c in row) for row in one))


def shuffled(puzzle: Puzzle, stream: random.Random) -> Puzzle:
    """Return a row with its demonstrations in another order."""
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
    """Return the rows of a self-edit: augmented and plain ones, a copy of each with permuted
    colours (where a tool is on) and shuffled demonstrations; duplicates out, then those that do
    not fit, then a seeded draw of at most `most`."""
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
