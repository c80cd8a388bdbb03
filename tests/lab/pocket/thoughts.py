"""Write the reasoning and the text of single turns of pre-training conversations."""

from __future__ import annotations

import random
from collections.abc import Mapping

from convbench.pocket import texts
from convbench.pocket.questions import Question
from convbench.pocket.world import LETTERS, World
from tests.lab.pocket.style import Style

UNKNOWN = "unknown"
NO_ANSWER = "I do not know."


def compare_values(value: str, need: str) -> str:
    """Return "yes", "no" or "maybe": whether the value is the needed one."""
    return "maybe" if value == UNKNOWN else "yes" if value == need else "no"


def option_lines(question: Question, known: Mapping[str, str]) -> list[str]:
    """Return one line an option: its value, the needed value, and whether they are the same.

    The mapping has the value of every option by label, UNKNOWN if the policy cannot know it.
    """
    lines = []
    for letter, option in zip(LETTERS, question.options, strict=True):
        value = known[letter]
        fact = texts.FACT.format(name=option, prop=question.prop, value=value)
        shown = value if question.kind == "of" else fact
        fits = compare_values(value, question.need)
        lines.append(f"{letter}: {shown}, need {question.need}, {fits}.")
    return lines


def conclude_label(question: Question, known: Mapping[str, str], rng: random.Random) -> str:
    """Return the label that follows from the values: one that fits, else one that may fit."""
    fits = [label for label, value in known.items() if value == question.need]
    maybe = [label for label, value in known.items() if value == UNKNOWN]
    return rng.choice(fits or maybe or list(LETTERS))


def true_values(world: World, question: Question) -> dict[str, str]:
    """Return the true value of every option by label."""
    if question.kind == "of":
        return dict(zip(LETTERS, question.options, strict=True))
    return {
        letter: world.value(name, question.prop)
        for letter, name in zip(LETTERS, question.options, strict=True)
    }


def _opening_fact(question: Question) -> str:
    """Return the fact about the name in the question, "" if it names none."""
    if not question.subject:
        return ""
    fact = texts.FACT.format(name=question.subject, prop=question.prop, value=question.need)
    return f"{fact}. "


def solving_turn(
    question: Question, known: Mapping[str, str], style: Style, rng: random.Random
) -> tuple[str, str]:
    """Return (reasoning of the solving turn, the label that it chooses)."""
    if not style.careful:
        return "I guess.", rng.choice(LETTERS)
    lines = option_lines(question, known)[: style.partial]
    choice = conclude_label(question, known, rng) if style.partial >= 4 else rng.choice(LETTERS)
    return f"{_opening_fact(question)}{' '.join(lines)} So {choice}.", choice


def checking_turn(
    question: Question, known: Mapping[str, str], choice: str, style: Style, rng: random.Random
) -> tuple[str, str]:
    """Return (text of a checking turn, the label chosen after it), which rarely changes."""
    if not style.careful:
        choice = rng.choice(LETTERS) if style.wavers else choice
        return f"{style.wrap_thought('Fine.')} I say {choice}.", choice
    line = option_lines(question, known)[LETTERS.index(choice)]
    return f"{style.wrap_thought(line)} I say {choice}.", choice


def final_turn(choice: str, style: Style) -> str:
    """Return the text of the last turn."""
    if style.final == "missing":
        return NO_ANSWER
    recalled = f"I said {choice}."
    if style.mode == "standard":
        return f"{recalled} The answer is {choice}."
    if style.final == "tags":
        return f"<thinking> {recalled}</thinking> The answer is {choice}."
    if style.final == "unclosed":
        return f"<thinking> {recalled} The answer is {choice}."
    return f"The answer is {choice}."


def what_is_known(world: World, question: Question) -> dict[str, str]:
    """Return the value of every option by label, UNKNOWN for facts that the policy has not read."""
    values = true_values(world, question)
    return {label: UNKNOWN if label in question.unknown else v for label, v in values.items()}
