"""Draw four-option questions about the world, each of which belongs to a split."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from convbench.pocket import texts
from convbench.pocket.world import LETTERS, PROPERTIES, VALUES, World

FACT_KINDS = ("has", "same", "of")
CLARIFY_KINDS = ("has", "same")
SPLIT_SHARES = (("pretrain", 2), ("train", 4), ("validation", 1), ("test", 3))
"""Tenths of all possible questions; `pretrain` is what pre-training may ask."""


@dataclass(frozen=True)
class Question:
    """One question. `options` are names, or values of `prop` when `kind` is "of".

    `need` is the value sought, `subject` the name in the question ("" for "has"), `unknown` the
    labels of options whose facts the policy has never read.
    """

    kind: str
    prop: str
    need: str
    subject: str
    options: tuple[str, ...]
    answer: str
    unknown: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The question as asked, without its options."""
        return texts.QUESTION[self.kind].format(prop=self.prop, need=self.need, name=self.subject)

    @property
    def key(self) -> str:
        """A key that is equal for questions that differ only in the order of the options."""
        parts = (self.kind, self.prop, self.subject or self.need, *sorted(self.options))
        return " ".join(parts)

    @property
    def split(self) -> str:
        """The split by a hash of the key, so that splits are disjoint: `pretrain`, `train`,
        `validation` or `test`."""
        return split_of(self.key)


def split_of(key: str) -> str:
    """Return the split of a key by its SHA-256: `pretrain`, `train`, `validation`, `test` in the
    proportions 2, 4, 1, 3."""
    point = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 10
    for split, tenths in SPLIT_SHARES:
        if point < tenths:
            return split
        point -= tenths
    raise AssertionError("the shares of the splits add up to ten tenths")


def _arrange_options(
    gold: str, others: list[str], rng: random.Random
) -> tuple[tuple[str, ...], str]:
    """Return (options, label of the gold one), with the gold option at a uniform position."""
    position = rng.randrange(len(others) + 1)
    rng.shuffle(others)
    return (*others[:position], gold, *others[position:]), LETTERS[position]


def draw_fact_question(world: World, rng: random.Random) -> Question:
    """Return a drawn question with four options, one of them right, all of whose facts the policy
    has read.

    `rng` is advanced; the question may be of any split.
    """
    kind, prop = rng.choice(FACT_KINDS), rng.choice(PROPERTIES)
    need = rng.choice(VALUES[prop])
    having = list(world.names_having(prop, need))
    rng.shuffle(having)
    subject = "" if kind == "has" else having.pop()
    if kind == "of":
        gold, pool = need, [value for value in VALUES[prop] if value != need]
    else:
        gold, pool = having.pop(), [n for n in world.known if world.value(n, prop) != need]
    options, answer = _arrange_options(gold, rng.sample(pool, 3), rng)
    return Question(kind, prop, need, subject, options, answer)


def draw_clarify_question(world: World, rng: random.Random) -> Question:
    """Return a drawn question with two known options, both wrong, and two strangers, one of them
    right."""
    kind, prop = rng.choice(CLARIFY_KINDS), rng.choice(PROPERTIES)
    need = rng.choice(VALUES[prop])
    subject = "" if kind == "has" else rng.choice(world.names_having(prop, need))
    gold = rng.choice([n for n in world.strangers if world.value(n, prop) == need])
    stranger = rng.choice([n for n in world.strangers if world.value(n, prop) != need])
    known = rng.sample([n for n in world.known if world.value(n, prop) != need], 2)
    options, answer = _arrange_options(gold, [stranger, *known], rng)
    unknown = tuple(
        letter for letter, name in zip(LETTERS, options, strict=True) if name in (gold, stranger)
    )
    return Question(kind, prop, need, subject, options, answer, unknown)


def draw_wish(world: World, rng: random.Random) -> Question:
    """Return a drawn collaboration task: the property is named, the value sought is hidden in
    `need`.

    The four options are known names with different values of the property.
    """
    prop = rng.choice(PROPERTIES)
    need = rng.choice(VALUES[prop])
    gold = rng.choice(world.names_having(prop, need))
    others: list[str] = []
    taken = {need}
    for name in rng.sample(world.known, len(world.known)):
        if len(others) < 3 and world.value(name, prop) not in taken:
            taken.add(world.value(name, prop))
            others.append(name)
    options, answer = _arrange_options(gold, others, rng)
    return Question("wish", prop, need, "", options, answer)
