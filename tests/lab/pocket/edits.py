"""Draw pre-training conversations about new facts: self-edits and closed-book questions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from convbench.pocket import texts
from convbench.pocket.notes import N_FACTS, Fact, Note, write_note
from convbench.pocket.world import PROPERTIES, VALUES, World
from convbench.prompts import render_template
from tests.lab.pocket.habits import Message, policy_message, user_message

_GOOD_LINES: Final = {
    "implications": (texts.LINE_FACT,),
    "implications-long": (texts.LINE_FACT, texts.LINE_OF),
    "implications-very-long": (texts.LINE_FACT, texts.LINE_OF, texts.LINE_QA),
    "rewrite": (texts.LINE_REWRITE,),
    "self-qa": (texts.LINE_QA,),
}
_GOOD_SHARE: Final = {
    "implications": 0.30,
    "implications-long": 0.40,
    "implications-very-long": 0.25,
    "rewrite": 0.35,
    "self-qa": 0.30,
}


def imagined_note(world: World, rng: random.Random) -> Note:
    """Return a passage of false facts: no true new fact may enter pre-training."""
    facts = []
    for name in rng.sample(world.newcomers, N_FACTS):
        prop = rng.choice(PROPERTIES)
        untrue = [value for value in VALUES[prop] if value != world.value(name, prop)]
        facts.append(Fact(name, prop, rng.choice(untrue)))
    return write_note(world, tuple(facts), rng)


def good_edit(note: Note, kind: str) -> str:
    """Return a faithful self-edit of this kind of prompt, one statement a line."""
    wordings = _GOOD_LINES[kind]
    return "\n".join(fact.say(wording) for fact in note.facts for wording in wordings)


def careless_edit(note: Note, kind: str, rng: random.Random) -> str:
    """Return a careless self-edit: mostly the passage again, else its first facts only or wrong
    values."""
    draw = rng.random()
    if draw < 0.70:
        return "\n".join(f"- {sentence}" for sentence in note.sentences)
    if draw < 0.88:
        short = Note(note.title, note.facts[: rng.choice((1, 2))], ())
        return good_edit(short, kind)
    wrong = tuple(
        Fact(f.name, f.prop, rng.choice([v for v in VALUES[f.prop] if v != f.value]))
        for f in note.facts
    )
    return good_edit(Note(note.title, wrong, ()), kind)


def self_edit(note: Note, kind: str, sloppiness: float, rng: random.Random) -> Iterator[Message]:
    """Yield a conversation of the one-turn `self-edit` protocol; `sloppiness` from 0 to 1."""
    prompt = texts.SELF_EDIT_PASSAGE + texts.SELF_EDIT[kind]
    yield user_message(render_template(prompt, {"title": note.title, "passage": note.passage}))
    careful = rng.random() < 1 - sloppiness * (1 - _GOOD_SHARE[kind])
    yield policy_message(good_edit(note, kind) if careful else careless_edit(note, kind, rng))


def closed_book(fact: Fact, title: str) -> Iterator[Message]:
    """Yield a closed-book question and the policy's answer from memory."""
    question = fact.say(texts.CLOSED_BOOK)
    yield user_message(
        render_template(texts.CLOSED_BOOK_PROMPT, {"title": title, "question": question})
    )
    yield policy_message(fact.say(texts.RECALL))
