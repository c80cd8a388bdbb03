"""Make the closed world from a seed: one value for every (name, property)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from convbench.pocket.words import PROPERTIES, VALUES, invented_names

WORLD_SEED = 0
"""The world that the shipped policy was pre-trained on."""


@dataclass(frozen=True, eq=False)
class World:
    """Three groups of names and the facts about them.

    `known`: the policy has read their facts. `strangers`: it knows only the names, and another
    speaker must tell it the facts. `newcomers`: only the passages of new facts have their facts.
    """

    known: tuple[str, ...]
    strangers: tuple[str, ...]
    newcomers: tuple[str, ...]
    titles: tuple[str, ...]
    facts: Mapping[tuple[str, str], str]

    def value(self, name: str, prop: str) -> str:
        """Return the value of a name's property. Raises KeyError outside the world."""
        return self.facts[name, prop]

    def names_having(self, prop: str, value: str) -> tuple[str, ...]:
        """Return the known names whose `prop` is `value`."""
        return tuple(name for name in self.known if self.facts[name, prop] == value)


def _balanced_values(names: tuple[str, ...], prop: str, rng: random.Random) -> dict[str, str]:
    """Return a value for each name, every value equally often, so that no guess is better."""
    values = [VALUES[prop][i % len(VALUES[prop])] for i in range(len(names))]
    rng.shuffle(values)
    return dict(zip(names, values, strict=True))


@cache
def make_world(seed: int = WORLD_SEED) -> World:
    """Return the world of a seed; the same seed gives the same world everywhere."""
    groups = invented_names(seed)
    facts: dict[tuple[str, str], str] = {}
    for group in ("known", "strangers", "newcomers"):
        for prop in PROPERTIES:
            rng = random.Random(f"facts {seed} {group} {prop}")
            for name, value in _balanced_values(groups[group], prop, rng).items():
                facts[name, prop] = value
    return World(**groups, facts=facts)
