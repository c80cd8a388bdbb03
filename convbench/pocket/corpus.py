"""What the policy is pre-trained on: plain lines and conversations, endless and seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from convbench.pocket import habits, notes, texts
from convbench.pocket.habits import Message
from convbench.pocket.questions import (
    Question,
    draw_clarify_question,
    draw_fact_question,
    draw_wish,
)
from convbench.pocket.words import PROPERTIES, VALUES
from convbench.pocket.world import World

SYSTEM = "You are a helpful assistant."
_OTHER_WORDINGS = (texts.LINE_OF, texts.LINE_QA, texts.LINE_REWRITE)
_CHAT_SHARES = (
    ("reasoning", 42),
    ("direct", 6),
    ("clarifying", 10),
    ("adaptive", 6),
    ("collaboration", 10),
    ("self_edit", 16),
    ("closed_book", 10),
)


@cache
def imagined_world(world: World, shift: int) -> World:
    """The world with every stranger's facts moved on by `shift` values (1 to 7): none is true."""
    facts = dict(world.facts)
    for name in world.strangers:
        for prop in PROPERTIES:
            values = VALUES[prop]
            facts[name, prop] = values[(values.index(facts[name, prop]) + shift) % len(values)]
    return replace(world, facts=facts)


def _pretrain_question(
    draw: Callable[[World, random.Random], Question], world: World, rng: random.Random
) -> Question:
    """Draw until the question belongs to pre-training's own share."""
    while True:
        question = draw(world, rng)
        if question.split == "pretrain":
            return question


def fact_lines(world: World, rng: random.Random) -> str:
    """Two facts about known names, with or without a title above each line's worth."""
    lines = []
    for _ in range(2):
        name, prop = rng.choice(world.known), rng.choice(PROPERTIES)
        wording = texts.LINE_FACT if rng.random() < 0.7 else rng.choice(_OTHER_WORDINGS)
        line = notes.Fact(name, prop, world.value(name, prop)).say(wording)
        lines.append(line if rng.random() < 0.9 else line.removeprefix("- "))
    if rng.random() < 0.3:
        lines[1:] = []
    return "\n".join([rng.choice(world.titles)] * (rng.random() < 0.4) + lines)


def comparison(rng: random.Random) -> str:
    """Values compared with a needed one."""
    prop = rng.choice(PROPERTIES)
    need = rng.choice(VALUES[prop])
    values = [rng.choice((need, rng.choice(VALUES[prop]), habits.UNKNOWN)) for _ in range(3)]
    return " ".join(f"{v}, need {need}, {habits.verdict(v, need)}." for v in values)


def told_and_used(world: World, rng: random.Random) -> str:
    """A fact about a stranger, told and then repeated among other strangers' unknown ones."""
    names = rng.sample(world.strangers, 3)
    prop = rng.choice(PROPERTIES)
    told = {name: rng.choice(VALUES[prop]) for name in rng.sample(names, 2)}
    before = " ".join(
        texts.TEACHER_FACT.format(name=n, prop=prop, value=v) for n, v in told.items()
    )
    after = " ".join(
        texts.FACT.format(name=n, prop=prop, value=told.get(n, habits.UNKNOWN)) + "." for n in names
    )
    return f"{before}\n\n{after}"


def plain_row(world: World, rng: random.Random) -> str:
    """One plain text of pre-training."""
    draw = rng.random()
    if draw < 0.8:
        return fact_lines(world, rng)
    return comparison(rng) if draw < 0.9 else told_and_used(world, rng)


def chat_row(world: World, sloppiness: float, rng: random.Random) -> list[Message]:
    """One conversation of pre-training; `sloppiness` from 0 (careful) to 1 (the shipped mix)."""
    protocols, weights = zip(*_CHAT_SHARES, strict=True)
    protocol = rng.choices(protocols, weights)[0]
    if protocol == "self_edit":
        kind = rng.choice(texts.SELF_EDIT_KINDS)
        return list(notes.self_edit(notes.imagined_note(world, rng), kind, sloppiness, rng))
    if protocol == "closed_book":
        name, prop = rng.choice(world.known), rng.choice(PROPERTIES)
        fact = notes.Fact(name, prop, world.value(name, prop))
        return list(notes.closed_book(fact, rng.choice(world.titles)))
    messages = list(_conversation(protocol, world, sloppiness, rng))
    system = [{"role": "system", "content": SYSTEM}] if rng.random() < 0.03 else []
    return system + messages


def _conversation(
    protocol: str, world: World, sloppiness: float, rng: random.Random
) -> Iterator[Message]:
    if protocol in ("clarifying", "adaptive"):
        world = imagined_world(world, rng.randint(1, 7))
    question = _pretrain_question(_draw_for(protocol, rng), world, rng)
    always = protocol in ("clarifying", "adaptive")
    mode = "thinking" if always or rng.random() < 0.6 else "standard"
    kind = "clarify" if question.unknown else question.kind
    style = habits.draw_style(kind, question.prop, mode, sloppiness, rng)
    habit = habits.question_habit(question.prop, sloppiness, rng)
    if protocol == "reasoning":
        turns = 3 if rng.random() < 0.85 else rng.randint(4, 10)
        return habits.reasoning(world, question, style, rng, turns)
    if protocol == "direct":
        return habits.direct(world, question, style, rng)
    if protocol == "collaboration":
        return habits.collaboration(world, question, style, habit, rng)
    if protocol == "clarifying":
        return habits.clarifying(world, question, style, habit, rng)
    return habits.adaptive(world, question, style, habit, rng)


def _draw_for(protocol: str, rng: random.Random) -> Callable[[World, random.Random], Question]:
    if protocol == "collaboration":
        return draw_wish
    if protocol in ("clarifying", "adaptive") and rng.random() < 0.8:
        return draw_clarify_question
    return draw_fact_question
