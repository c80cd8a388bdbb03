"""The vocabulary of the pocket world: properties, values, invented names, titles."""

from __future__ import annotations

import itertools
import random

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
    """Return the disjoint groups of names `known`, `strangers`, `newcomers` and `titles`, drawn by
    the seed.

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
