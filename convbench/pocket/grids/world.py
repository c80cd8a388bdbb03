"""Rules that change small grids, and tasks of pairs of rules that move cells."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from convbench.tasks.arc_agi.edit import BY_NAME, roll_cells
from convbench.tasks.arc_agi.grids import Grid, Pair

N_COLOURS = 6
"""Colours of one task, 0 (the background) among them."""
SIDES = (3,)
"""Sides of grids. Wider ones take the policy longer to read."""
SHOWN = 5
"""Demonstrations of a task. Each output cell comes from one of nine cells, and a demonstration
excludes five sixths of the wrong ones, so that four would leave it to chance too often."""
TURNS: Final = ("rotate-90", "rotate-180", "rotate-270", "flip-rows", "flip-columns", "transpose")
SHIFTS: Final = {"down": (1, 0), "up": (-1, 0), "right": (0, 1), "left": (0, -1)}
REPEATS: Final = ("repeat-down", "repeat-across")
MOVES: Final = ("turn", "shift", "repeat")


@dataclass(frozen=True)
class Rule:
    """A rule that changes every grid of a task."""

    family: str
    name: str
    change: Callable[[Grid], Grid]


def geometric_rules() -> list[Rule]:
    """Return the rules that move cells: 6 turns, 4 shifts, 2 repeats."""
    return [
        *(Rule("turn", name, BY_NAME[name].change) for name in TURNS),
        *(
            Rule("shift", f"shift-{name}", partial(roll_cells, down=down, right=right))
            for name, (down, right) in SHIFTS.items()
        ),
        *(Rule("repeat", name, BY_NAME[name].change) for name in REPEATS),
    ]


def pair_of(rng: random.Random) -> tuple[Rule, Rule]:
    """Return two rules of different families that move cells, in the order in which they apply."""
    rules = geometric_rules()
    first, second = (
        rng.choice([rule for rule in rules if rule.family == family])
        for family in rng.sample(MOVES, 2)
    )
    return first, second


def combine_rules(first: Rule, second: Rule) -> Rule:
    """Return the rule that applies the first, then the second."""
    name = f"{first.name}, {second.name}"
    return Rule("pair", name, lambda grid: second.change(first.change(grid)))


@dataclass(frozen=True)
class GridTask:
    """A rule with its demonstrations and one test pair, all grids of one size."""

    rule: str
    shown: tuple[Pair, ...]
    test: Pair


def draw_task(
    rng: random.Random,
    rule: Rule,
    colours: tuple[int, ...],
    shown: int = SHOWN,
    sides: Sequence[int] = SIDES,
) -> GridTask:
    """Return a task of a rule: `shown` demonstrations and one test pair.

    Input grids have one drawn size and cells of the given colours; `rng` is advanced.
    """
    high, wide = rng.choice(sides), rng.choice(sides)
    grids = [
        tuple(tuple(rng.choice(colours) for _ in range(wide)) for _ in range(high))
        for _ in range(shown + 1)
    ]
    pairs = [Pair(grid, rule.change(grid)) for grid in grids]
    return GridTask(rule.name, tuple(pairs[:-1]), pairs[-1])


def pair_tasks(seed: int, counts: dict[str, int]) -> Iterator[tuple[str, GridTask]]:
    """Yield (split, task), split by split, each task with a pair of rules drawn by the seed.

    No two tasks have the same rule: pairs that change a grid in the same way count as one. It does
    not end if more tasks are asked for than there are such rules.
    """
    rng = random.Random(f"grids {seed}")
    colours = tuple(range(N_COLOURS))
    seen: set[Grid] = set()
    for split, count in counts.items():
        drawn = 0
        while drawn < count:
            first, second = pair_of(rng)
            rule = combine_rules(first, second)
            mark = _rule_effect(rule)
            if mark not in seen:
                seen.add(mark)
                drawn += 1
                yield split, draw_task(rng, rule, colours)


_PROBE: Final[Grid] = ((0, 1, 2), (3, 4, 5), (1, 3, 4))
"""A grid that distinguishes rules: those that change it in the same way count as the same."""


def _rule_effect(rule: Rule) -> Grid:
    return rule.change(_PROBE)
