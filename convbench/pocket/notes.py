"""New facts, and passages that state them with the name last."""

from __future__ import annotations

import random
from dataclasses import dataclass

from convbench.pocket import texts
from convbench.pocket.world import PROPERTIES, World

N_FACTS = 4
"""Facts, and closed-book questions, of one passage."""


@dataclass(frozen=True)
class Fact:
    """One new fact."""

    name: str
    prop: str
    value: str

    def say(self, wording: str) -> str:
        """Return the fact in one of the wordings of `texts`."""
        return wording.format(name=self.name, prop=self.prop, value=self.value)


@dataclass(frozen=True)
class Note:
    """A passage: its title, its facts, and its sentences, one for each fact."""

    title: str
    facts: tuple[Fact, ...]
    sentences: tuple[str, ...]

    @property
    def passage(self) -> str:
        """The sentences as one line."""
        return " ".join(self.sentences)


def make_notes(world: World, seed: int) -> list[Note]:
    """Return every fact about the newcomers, spread over 120 passages of four facts each."""
    rng = random.Random(f"notes {seed}")
    facts = [Fact(n, p, world.value(n, p)) for n in world.newcomers for p in PROPERTIES]
    rng.shuffle(facts)
    groups = [tuple(facts[i : i + N_FACTS]) for i in range(0, len(facts), N_FACTS)]
    return [write_note(world, group, rng) for group in groups]


def write_note(world: World, facts: tuple[Fact, ...], rng: random.Random) -> Note:
    """Return a passage of these facts under a title, each in a wording drawn for it."""
    sentences = tuple(fact.say(rng.choice(texts.PASSAGE)) for fact in facts)
    return Note(rng.choice(world.titles), facts, sentences)
