"""Write pre-training conversations, careful and careless, in each protocol."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from convbench.pocket import texts
from convbench.pocket.questions import Question
from convbench.pocket.speakers import tell
from convbench.pocket.words import LETTERS, PROPERTIES
from convbench.pocket.world import World
from convbench.prompts import render
from trainers.pocket.style import Style, distraction
from trainers.pocket.thoughts import (
    NO_ANSWER,
    check,
    final,
    option_lines,
    reason,
    true_values,
    what_is_known,
)

Message = dict[str, str]


def user(content: str) -> Message:
    """Return a message of the other speaker."""
    return {"role": "user", "content": content}


def said(content: str) -> Message:
    """Return a message of the policy."""
    return {"role": "assistant", "content": content}


def pose(question: Question) -> str:
    """Return the question and its options as the other speaker's text."""
    choices = [
        {"label": letter, "text": option}
        for letter, option in zip(LETTERS, question.options, strict=True)
    ]
    return render(texts.POSE, {"question": question.text, "choices": choices})


def solve_and_answer(
    question: Question,
    told: Mapping[str, str],
    style: Style,
    rng: random.Random,
    checks: int,
    before: str,
) -> Iterator[Message]:
    """Yield the messages from the solving turn to the final one, with `checks` checking turns
    between them."""
    thought, choice = reason(question, told, style, rng)
    yield user(f"{before}\n\n{texts.SOLVE[style.mode]}")
    yield said(f"{style.think(thought)} I say {choice}.")
    for _ in range(checks):
        yield user(texts.CHECK[style.mode])
        turn, choice = check(question, told, choice, style, rng)
        yield said(turn)
    yield user(texts.ANSWER[style.mode])
    yield said(final(choice, style))


def reasoning(
    world: World, question: Question, style: Style, rng: random.Random, turns: int
) -> Iterator[Message]:
    """Yield a conversation of the `reasoning` protocol with so many policy turns, at least two."""
    told = true_values(world, question)
    yield from solve_and_answer(question, told, style, rng, turns - 2, pose(question))


def direct(world: World, question: Question, style: Style, rng: random.Random) -> Iterator[Message]:
    """Yield a conversation of the `direct` protocol: reasoning and answer in one turn."""
    yield user(f"{pose(question)}\n\n{texts.DIRECT[style.mode]}")
    yield said(_answer_at_once(question, true_values(world, question), style, rng))


def _asked(question: Question, useful: list[str], habit: str, rng: random.Random) -> str:
    """Return the label of the option to ask about, or "" for no question."""
    if habit == "none":
        return ""
    useless = [letter for letter in LETTERS if letter not in useful]
    return rng.choice(useful if habit == "good" and useful else useless or useful)


def clarifying(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """Yield a conversation of the `clarifying` protocol: ask about one option, then solve."""
    told = what_is_known(world, question)
    yield user(f"{pose(question)}\n\n{texts.ASK}")
    label = _asked(question, list(question.unknown), habit, rng)
    if label:
        option = question.options[LETTERS.index(label)]
        yield said(f"What about {option}?")
        reply = tell(world, question.text, option)
        told[label] = true_values(world, question)[label]
    else:
        yield said(texts.NO_QUESTION)
        reply = texts.TEACHER_LOST
    yield from solve_and_answer(question, told, style, rng, 0, reply)


def adaptive(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """Yield a conversation of the `clarifying-adaptive` protocol: questions or none, the marker
    that ends them, then one answer."""
    told, values = what_is_known(world, question), true_values(world, question)
    before = f"{pose(question)}\n\n{texts.ASK_OR_READY}"
    useful = list(question.unknown)
    for label in _questions(question, useful, habit, rng):
        yield user(before)
        option = question.options[LETTERS.index(label)]
        yield said(f"What about {option}?")
        before = tell(world, question.text, option)
        told[label] = values[label]
    if rng.random() < 0.85:
        yield user(before)
        yield said(texts.READY)
        yield user(texts.DIRECT[style.mode])
    else:
        yield user(f"{before}\n\n{texts.DIRECT[style.mode]}")
    yield said(_answer_at_once(question, told, style, rng))


def _questions(question: Question, useful: list[str], habit: str, rng: random.Random) -> list[str]:
    """Return the labels to ask about, in order; rarely more than one."""
    first = _asked(question, useful, habit, rng)
    if not first:
        return []
    rest = [letter for letter in LETTERS if letter != first]
    return [first, rng.choice(rest)] if rng.random() < 0.2 else [first]


def _answer_at_once(
    question: Question, told: Mapping[str, str], style: Style, rng: random.Random
) -> str:
    if style.final == "missing":
        return NO_ANSWER
    thought, choice = reason(question, told, style, rng)
    return f"{style.think(thought)} The answer is {choice}."


def collaboration(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """Yield a conversation of the `collaboration` protocol: ask for the wish or not, then answer
    after the marker."""
    yield user(f"{pose(question)}\n\n{texts.COLLABORATE}")
    informed = False
    if habit == "useless":
        others = [prop for prop in PROPERTIES if prop != question.prop]
        other = distraction(question.prop) if rng.random() < 0.8 else rng.choice(others)
        yield said(f"Which {other}?")
        yield user(texts.HUMAN_ANY.format(prop=other))
        habit = "good" if rng.random() < 0.15 else "none"
    if habit == "good":
        informed = True
        yield said(f"Which {question.prop}?")
        yield user(texts.HUMAN_NEED.format(prop=question.prop, value=question.need))
    yield said(_collaboration_answer(world, question, style, informed, rng))


def _collaboration_answer(
    world: World, question: Question, style: Style, informed: bool, rng: random.Random
) -> str:
    if not informed or not style.careful:
        return f"I guess. {texts.MARKER} {rng.choice(LETTERS)}"
    told = true_values(world, question)
    lines = " ".join(option_lines(question, told))
    return f"{lines} So {question.answer}. {texts.MARKER} {question.answer}"
