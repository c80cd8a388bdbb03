"""Write pre-training conversations, careful and careless, in each protocol."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from convbench.pocket import texts
from convbench.pocket.questions import Question
from convbench.pocket.speakers import tell_fact
from convbench.pocket.world import LETTERS, PROPERTIES, World
from convbench.prompts import render_template
from tests.lab.pocket.style import Style, usual_distraction
from tests.lab.pocket.thoughts import (
    NO_ANSWER,
    checking_turn,
    final_turn,
    option_lines,
    solving_turn,
    true_values,
    what_is_known,
)

Message = dict[str, str]


def user_message(content: str) -> Message:
    """Return a message of the other speaker."""
    return {"role": "user", "content": content}


def policy_message(content: str) -> Message:
    """Return a message of the policy."""
    return {"role": "assistant", "content": content}


def pose_question(question: Question) -> str:
    """Return the question and its options as the other speaker's text."""
    choices = [
        {"label": letter, "text": option}
        for letter, option in zip(LETTERS, question.options, strict=True)
    ]
    return render_template(texts.POSE, {"question": question.text, "choices": choices})


def solve_and_answer(
    question: Question,
    known: Mapping[str, str],
    style: Style,
    rng: random.Random,
    checks: int,
    before: str,
) -> Iterator[Message]:
    """Yield the messages from the solving turn to the final one, with `checks` checking turns
    between them."""
    thought, choice = solving_turn(question, known, style, rng)
    yield user_message(f"{before}\n\n{texts.SOLVE[style.mode]}")
    yield policy_message(f"{style.wrap_thought(thought)} I say {choice}.")
    for _ in range(checks):
        yield user_message(texts.CHECK[style.mode])
        turn, choice = checking_turn(question, known, choice, style, rng)
        yield policy_message(turn)
    yield user_message(texts.ANSWER[style.mode])
    yield policy_message(final_turn(choice, style))


def reasoning_messages(
    world: World, question: Question, style: Style, rng: random.Random, turns: int
) -> Iterator[Message]:
    """Yield a conversation of the `reasoning` protocol with so many policy turns, at least two."""
    known = true_values(world, question)
    yield from solve_and_answer(question, known, style, rng, turns - 2, pose_question(question))


def direct_messages(
    world: World, question: Question, style: Style, rng: random.Random
) -> Iterator[Message]:
    """Yield a conversation of the `direct` protocol: reasoning and answer in one turn."""
    yield user_message(f"{pose_question(question)}\n\n{texts.DIRECT[style.mode]}")
    yield policy_message(_answer_at_once(question, true_values(world, question), style, rng))


def _asked_label(question: Question, useful: list[str], habit: str, rng: random.Random) -> str:
    """Return the label of the option to ask about, or "" for no question."""
    if habit == "none":
        return ""
    useless = [letter for letter in LETTERS if letter not in useful]
    return rng.choice(useful if habit == "good" and useful else useless or useful)


def clarifying_messages(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """Yield a conversation of the `clarifying` protocol: ask about one option, then solve."""
    known = what_is_known(world, question)
    yield user_message(f"{pose_question(question)}\n\n{texts.ASK}")
    label = _asked_label(question, list(question.unknown), habit, rng)
    if label:
        option = question.options[LETTERS.index(label)]
        yield policy_message(f"What about {option}?")
        reply = tell_fact(world, question.text, option)
        known[label] = true_values(world, question)[label]
    else:
        yield policy_message(texts.NO_QUESTION)
        reply = texts.TEACHER_LOST
    yield from solve_and_answer(question, known, style, rng, 0, reply)


def adaptive_messages(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """Yield a conversation of the `clarifying-adaptive` protocol: questions or none, the marker
    that ends them, then one answer."""
    known, values = what_is_known(world, question), true_values(world, question)
    before = f"{pose_question(question)}\n\n{texts.ASK_OR_READY}"
    useful = list(question.unknown)
    for label in _question_labels(question, useful, habit, rng):
        yield user_message(before)
        option = question.options[LETTERS.index(label)]
        yield policy_message(f"What about {option}?")
        before = tell_fact(world, question.text, option)
        known[label] = values[label]
    if rng.random() < 0.85:
        yield user_message(before)
        yield policy_message(texts.READY)
        yield user_message(texts.DIRECT[style.mode])
    else:
        yield user_message(f"{before}\n\n{texts.DIRECT[style.mode]}")
    yield policy_message(_answer_at_once(question, known, style, rng))


def _question_labels(
    question: Question, useful: list[str], habit: str, rng: random.Random
) -> list[str]:
    """Return the labels to ask about, in order; rarely more than one."""
    first = _asked_label(question, useful, habit, rng)
    if not first:
        return []
    rest = [letter for letter in LETTERS if letter != first]
    return [first, rng.choice(rest)] if rng.random() < 0.2 else [first]


def _answer_at_once(
    question: Question, known: Mapping[str, str], style: Style, rng: random.Random
) -> str:
    if style.final == "missing":
        return NO_ANSWER
    thought, choice = solving_turn(question, known, style, rng)
    return f"{style.wrap_thought(thought)} The answer is {choice}."


def collaboration_messages(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """Yield a conversation of the `collaboration` protocol: ask for the wish or not, then answer
    after the marker."""
    yield user_message(f"{pose_question(question)}\n\n{texts.COLLABORATE}")
    informed = False
    if habit == "useless":
        others = [prop for prop in PROPERTIES if prop != question.prop]
        other = usual_distraction(question.prop) if rng.random() < 0.8 else rng.choice(others)
        yield policy_message(f"Which {other}?")
        yield user_message(texts.HUMAN_ANY.format(prop=other))
        habit = "good" if rng.random() < 0.15 else "none"
    if habit == "good":
        informed = True
        yield policy_message(f"Which {question.prop}?")
        yield user_message(texts.HUMAN_NEED.format(prop=question.prop, value=question.need))
    yield policy_message(_collaboration_answer(world, question, style, informed, rng))


def _collaboration_answer(
    world: World, question: Question, style: Style, informed: bool, rng: random.Random
) -> str:
    if not informed or not style.careful:
        return f"I guess. {texts.MARKER} {rng.choice(LETTERS)}"
    known = true_values(world, question)
    lines = " ".join(option_lines(question, known))
    return f"{lines} So {question.answer}. {texts.MARKER} {question.answer}"
