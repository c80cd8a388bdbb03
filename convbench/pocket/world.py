"""The closed world: its words, and one value for every (name, property), made from a seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

VALUES: dict[str, tuple[str, ...]] = {
    "color": ("red", "blue", "green", "white", "black", "brown", "pink", "gold"),
    "home": ("cave", "tree", "lake", "hill", "barn", "boat", "tower", "field"),
    "food": ("corn", "fish", "nuts", "soup", "plum", "bread", "honey", "rice"),
    "shape": ("round", "flat", "long", "tall", "square", "curved", "thin", "wide"),
    "tool": ("hammer", "rope", "lamp", "brush", "knife", "drum", "needle", "shovel"),
    "mood": ("calm", "proud", "shy", "merry", "brave", "sad", "angry", "sleepy"),
}
"""Property to its eight values; no value belongs to two properties."""

PROPERTIES: tuple[str, ...] = tuple(VALUES)
LETTERS = "ABCD"
N_KNOWN, N_STRANGERS, N_NEWCOMERS, N_TITLES = 120, 40, 80, 24

_ONSETS, _VOWELS, _CODAS = "bdfgklmnprstvz", "aeiou", "lmnrstk"


def _all_names() -> list[str]:
    """Return every consonant-vowel-consonant-vowel-consonant word, in alphabetical order."""
    parts = itertools.product(_ONSETS, _VOWELS, _ONSETS, _VOWELS, _CODAS)
    return ["".join(part) for part in parts]


def invented_names(seed: int) -> dict[str, tuple[str, ...]]:
    """Return the disjoint groups of names `known` (120), `strangers` (40), `newcomers` (80) and
    `titles` (24), drawn by the seed.

    Titles are capitalised: they name a passage, not somebody in the world.
    """
    sizes = {
        "known": N_KNOWN,
        "strangers": N_STRANGERS,
        "newcomers": N_NEWCOMERS,
        "titles": N_TITLES,
    }
    drawn = iter(random.Random(f"names {seed}").sample(_all_names(), sum(sizes.values())))
    groups = {group: tuple(itertools.islice(drawn, size)) for group, size in sizes.items()}
    groups["titles"] = tuple(title.capitalize() for title in groups["titles"])
    return groups


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
    """Return the world of a seed, the same object at each call; the same seed gives the same world
    everywhere."""
    groups = invented_names(seed)
    facts: dict[tuple[str, str], str] = {}
    for group in ("known", "strangers", "newcomers"):
        for prop in PROPERTIES:
            rng = random.Random(f"facts {seed} {group} {prop}")
            for name, value in _balanced_values(groups[group], prop, rng).items():
                facts[name, prop] = value
    return World(**groups, facts=facts)
