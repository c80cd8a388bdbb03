"""Draw the pre-training text of the pocket policy, plain lines and conversations, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from convbench.pocket import texts
from convbench.pocket.notes import Fact
from convbench.pocket.questions import (
    Question,
    draw_clarify_question,
    draw_fact_question,
    draw_wish,
)
from convbench.pocket.world import PROPERTIES, VALUES, World
from tests.lab.pocket import edits, habits
from tests.lab.pocket.habits import Message
from tests.lab.pocket.style import draw_style, question_habit
from tests.lab.pocket.thoughts import UNKNOWN, compare_values

SYSTEM = "You are a helpful assistant."
_OTHER_WORDINGS = (texts.LINE_OF, texts.LINE_QA, texts.LINE_REWRITE)
_CHAT_SHARES = (
    ("reasoning", 36),
    ("direct", 6),
    ("clarifying", 14),
    ("adaptive", 8),
    ("collaboration", 10),
    ("self_edit", 16),
    ("closed_book", 10),
)


@cache
def imagined_world(world: World, shift: int) -> World:
    """Return the world with every stranger's values shifted by `shift` (1 to 7): none is true."""
    facts = dict(world.facts)
    for name in world.strangers:
        for prop in PROPERTIES:
            values = VALUES[prop]
            facts[name, prop] = values[(values.index(facts[name, prop]) + shift) % len(values)]
    return replace(world, facts=facts)


def _pretrain_question(
    draw: Callable[[World, random.Random], Question], world: World, rng: random.Random
) -> Question:
    """Return a drawn question of pre-training's share of the questions."""
    while True:
        question = draw(world, rng)
        if question.split == "pretrain":
            return question


def fact_lines(world: World, rng: random.Random) -> str:
    """Return one or two lines of facts about known names, sometimes below a title."""
    lines = []
    for _ in range(2):
        name, prop = rng.choice(world.known), rng.choice(PROPERTIES)
        wording = texts.LINE_FACT if rng.random() < 0.7 else rng.choice(_OTHER_WORDINGS)
        line = Fact(name, prop, world.value(name, prop)).say(wording)
        lines.append(line if rng.random() < 0.9 else line.removeprefix("- "))
    if rng.random() < 0.3:
        lines[1:] = []
    return "\n".join([rng.choice(world.titles)] * (rng.random() < 0.4) + lines)


def comparison_line(rng: random.Random) -> str:
    """Return three values compared with a needed one."""
    prop = rng.choice(PROPERTIES)
    need = rng.choice(VALUES[prop])
    values = [rng.choice((need, rng.choice(VALUES[prop]), UNKNOWN)) for _ in range(3)]
    return " ".join(f"{v}, need {need}, {compare_values(v, need)}." for v in values)


def facts_then_use(world: World, rng: random.Random) -> str:
    """Return facts about strangers, stated, then used in lines like those of careful reasoning."""
    prop = rng.choice(PROPERTIES)
    strangers = rng.sample(world.strangers, rng.choice((2, 3)))
    stated = {name: rng.choice(VALUES[prop]) for name in strangers[1:]}
    known = rng.choice(world.known)
    values = {**dict.fromkeys(strangers, UNKNOWN), **stated, known: world.value(known, prop)}
    need = rng.choice([*stated.values(), rng.choice(VALUES[prop])])
    statements = [texts.TEACHER_FACT.format(name=n, prop=prop, value=v) for n, v in stated.items()]
    uses = [
        f"{texts.FACT.format(name=name, prop=prop, value=values[name])}, need {need}, "
        f"{compare_values(values[name], need)}."
        for name in rng.sample(list(values), len(values))
    ]
    return f"{' '.join(statements)}\n\n{' '.join(uses)}"


def plain_row(world: World, rng: random.Random) -> str:
    """Return a plain text for pre-training."""
    draw = rng.random()
    if draw < 0.65:
        return fact_lines(world, rng)
    return comparison_line(rng) if draw < 0.75 else facts_then_use(world, rng)


def chat_row(world: World, sloppiness: float, rng: random.Random) -> list[Message]:
    """Return a conversation for pre-training; `sloppiness` from 0 (careful) to 1 (as shipped)."""
    protocols, weights = zip(*_CHAT_SHARES, strict=True)
    protocol = rng.choices(protocols, weights)[0]
    if protocol == "self_edit":
        kind = rng.choice(texts.SELF_EDIT_KINDS)
        return list(edits.self_edit(edits.imagined_note(world, rng), kind, sloppiness, rng))
    if protocol == "closed_book":
        name, prop = rng.choice(world.known), rng.choice(PROPERTIES)
        fact = Fact(name, prop, world.value(name, prop))
        return list(edits.closed_book(fact, rng.choice(world.titles)))
    messages = list(_draw_conversation(protocol, world, sloppiness, rng))
    system = [{"role": "system", "content": SYSTEM}] if rng.random() < 0.03 else []
    return system + messages


def _draw_conversation(
    protocol: str, world: World, sloppiness: float, rng: random.Random
) -> Iterator[Message]:
    if protocol in ("clarifying", "adaptive"):
        world = imagined_world(world, rng.randint(1, 7))
    question = _pretrain_question(_draw_for(protocol, rng), world, rng)
    always = protocol in ("clarifying", "adaptive")
    mode = "thinking" if always or rng.random() < 0.6 else "standard"
    kind = "clarify" if question.unknown else question.kind
    style = draw_style(kind, question.prop, mode, sloppiness, rng)
    habit = question_habit(question.prop, sloppiness, rng)
    if protocol == "reasoning":
        turns = 3 if rng.random() < 0.85 else rng.randint(4, 10)
        return habits.reasoning_messages(world, question, style, rng, turns)
    if protocol == "direct":
        return habits.direct_messages(world, question, style, rng)
    if protocol == "collaboration":
        return habits.collaboration_messages(world, question, style, habit, rng)
    if protocol == "clarifying":
        return habits.clarifying_messages(world, question, style, habit, rng)
    return habits.adaptive_messages(world, question, style, habit, rng)


def _draw_for(protocol: str, rng: random.Random) -> Callable[[World, random.Random], Question]:
    if protocol == "collaboration":
        return draw_wish
    if protocol in ("clarifying", "adaptive") and rng.random() < 0.8:
        return draw_clarify_question
    return draw_fact_question
