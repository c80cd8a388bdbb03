"""Draw the pre-training text of the grids' policy: single rules in context, and random edits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from typing import Final

from convbench.pocket.grids.world import (
    MOVES,
    N_COLOURS,
    SIDES,
    GridTask,
    Rule,
    combine_rules,
    draw_task,
    geometric_rules,
    pair_of,
)
from convbench.tasks.arc_agi.edit import GROUPS, STRATEGIES, SelfEdit
from convbench.tasks.arc_agi.grids import COLOURS, Pair, format_grid

ASK: Final = "Write a self-edit."
"""The request below the demonstrations in specs/tasks/pocket-grids.yaml."""
FAMILIES: Final = (*MOVES, "recolour")
RATES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
EPOCHS: Final = tuple(range(1, 9))
SIGNS: Final = {rule.name: chr(ord("A") + at) for at, rule in enumerate(geometric_rules())}
"""A letter for every rule that moves cells."""
SIGNED = 0.6
"""Share of the rows that begin with the rule's letter: with it the policy learns what the rules do
long before it can infer the rule from the demonstrations. No other text has these letters."""


def recolour_rule(rng: random.Random, colours: tuple[int, ...]) -> Rule:
    """Return a rule that maps every colour of a task but the background to another one. It is never
    paired: a tool permutes the colours, which makes it another rule."""
    away = [
        permutation
        for permutation in permutations(colours[1:])
        if all(a != b for a, b in zip(permutation, colours[1:], strict=True))
    ]
    sent = dict(zip(colours[1:], rng.choice(away), strict=True))
    name = "recolour-" + "".join(f"{sent.get(c, c)}" for c in colours)
    return Rule(
        "recolour", name, lambda grid: tuple(tuple(sent.get(c, c) for c in r) for r in grid)
    )


def single_rule(rng: random.Random, colours: tuple[int, ...]) -> Rule:
    """Return a drawn rule, each family equally often."""
    family = rng.choice(FAMILIES)
    if family == "recolour":
        return recolour_rule(rng, colours)
    return rng.choice([rule for rule in geometric_rules() if rule.family == family])


def some_colours(rng: random.Random) -> tuple[int, ...]:
    """Return the background and drawn other colours."""
    return (0, *rng.sample(range(1, COLOURS), N_COLOURS - 1))


def context_task(
    rng: random.Random, sides: Sequence[int] = SIDES, most: int = 4
) -> tuple[GridTask, str]:
    """Return (task of a single rule with 1 to `most` demonstrations, the rule's letter or "")."""
    colours = some_colours(rng)
    drawn = draw_task(rng, single_rule(rng, colours), colours, rng.randint(1, most), sides)
    return drawn, SIGNS.get(drawn.rule, "") if rng.random() < SIGNED else ""


def draw_edit(rng: random.Random) -> SelfEdit:
    """Return an edit with every part drawn uniformly."""
    groups = frozenset(group for group in GROUPS if rng.random() < 0.5)
    return SelfEdit(groups, rng.choice(STRATEGIES), rng.choice(RATES), rng.choice(EPOCHS))


def edit_row(rng: random.Random) -> tuple[str, str]:
    """Return (prompt, self-edit): a task of a pair of rules, whose solution is never shown, and a
    random edit."""
    colours = some_colours(rng)
    drawn = draw_task(rng, combine_rules(*pair_of(rng)), colours)
    return f"{format_pairs(drawn.shown)}\n------\n{ASK}", draw_edit(rng).to_json()


def format_pairs(pairs: tuple[Pair, ...]) -> str:
    """Return demonstrations as text for the prompt of a self-edit."""
    return "\n\n".join(
        f"Input:\n{format_grid(p.input, 'digits')}\nOutput:\n{format_grid(p.output, 'digits')}"
        for p in pairs
    )
