"""Conversations as the careful and careless policy of pre-training holds them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from convbench.pocket import care, texts
from convbench.pocket.questions import Question
from convbench.pocket.render import pose
from convbench.pocket.speakers import tell
from convbench.pocket.words import LETTERS, PROPERTIES
from convbench.pocket.world import World

Message = dict[str, str]
UNKNOWN = "unknown"
NO_ANSWER = "I do not know."


@dataclass(frozen=True)
class Style:
    """The habits drawn for one conversation.

    `careful`: goes through the options. `partial`: stops after that many options (4: none left
    out). `opens`, `closes`: whether thinking is opened and closed with tags. `final`: how the
    last turn goes, one of "tags", "plain", "unclosed", "missing".
    """

    mode: str
    careful: bool
    partial: int
    opens: bool
    closes: bool
    final: str
    wavers: bool

    def think(self, thought: str) -> str:
        """Wrap a thought in tags as this style does; bare in standard mode."""
        if self.mode == "standard" or not self.opens:
            return thought
        return f"<thinking> {thought}</thinking>" if self.closes else f"<thinking> {thought}"


def draw_style(kind: str, prop: str, mode: str, sloppiness: float, rng: random.Random) -> Style:
    """Draw the habits of one conversation; `sloppiness` 0 gives care only, 1 the full mixture.

    `kind` is the question's kind, or "clarify" where a teacher can be asked about strangers.
    """
    chance = 1 - sloppiness * (1 - care.care(kind, prop))
    tagged = 1 - sloppiness * (1 - care.tags(kind, prop))
    final = "tags" if rng.random() < tagged else "plain"
    slip = rng.random()
    if slip < 0.06 * sloppiness:
        final = "missing" if slip < 0.03 * sloppiness else "unclosed"
    return Style(
        mode=mode,
        careful=rng.random() < chance,
        partial=rng.choice((1, 2)) if rng.random() < 0.1 * sloppiness else 4,
        opens=rng.random() > 0.1 * sloppiness,
        closes=rng.random() > 0.06 * sloppiness,
        final=final,
        wavers=rng.random() < 0.06 * sloppiness,
    )


def verdict(value: str, need: str) -> str:
    return "maybe" if value == UNKNOWN else "yes" if value == need else "no"


def option_lines(question: Question, told: Mapping[str, str]) -> list[str]:
    """One line an option: what it is, what is needed, and whether that is the same.

    `told` gives the value of every option by label, UNKNOWN where the policy cannot know it.
    """
    lines = []
    for letter, option in zip(LETTERS, question.options, strict=True):
        value = told[letter]
        fact = texts.FACT.format(name=option, prop=question.prop, value=value)
        shown = value if question.kind == "of" else fact
        fits = verdict(value, question.need)
        lines.append(f"{letter}: {shown}, need {question.need}, {fits}.")
    return lines


def conclusion(question: Question, told: Mapping[str, str], rng: random.Random) -> str:
    """The label that the lines lead to: the one that fits, else one that may fit."""
    fits = [label for label, value in told.items() if value == question.need]
    maybe = [label for label, value in told.items() if value == UNKNOWN]
    return rng.choice(fits or maybe or list(LETTERS))


def true_values(world: World, question: Question) -> dict[str, str]:
    """The value of every option by label."""
    if question.kind == "of":
        return dict(zip(LETTERS, question.options, strict=True))
    return {
        letter: world.value(name, question.prop)
        for letter, name in zip(LETTERS, question.options, strict=True)
    }


def _opening(question: Question) -> str:
    """The fact about the name that the question speaks of, recalled first."""
    if not question.subject:
        return ""
    fact = texts.FACT.format(name=question.subject, prop=question.prop, value=question.need)
    return f"{fact}. "


def reason(
    question: Question, told: Mapping[str, str], style: Style, rng: random.Random
) -> tuple[str, str]:
    """The thought of the solving turn and the label it ends in."""
    if not style.careful:
        return "I guess.", rng.choice(LETTERS)
    lines = option_lines(question, told)[: style.partial]
    choice = conclusion(question, told, rng) if style.partial >= 4 else rng.choice(LETTERS)
    return f"{_opening(question)}{' '.join(lines)} So {choice}.", choice


def check(
    question: Question, told: Mapping[str, str], choice: str, style: Style, rng: random.Random
) -> tuple[str, str]:
    """A checking turn: look at the choice once more, or just say so; seldom change it."""
    if not style.careful:
        choice = rng.choice(LETTERS) if style.wavers else choice
        return f"{style.think('Fine.')} I say {choice}.", choice
    line = option_lines(question, told)[LETTERS.index(choice)]
    return f"{style.think(line)} I say {choice}.", choice


def final(choice: str, style: Style) -> str:
    """The last turn."""
    if style.final == "missing":
        return NO_ANSWER
    said = f"I said {choice}."
    if style.mode == "standard":
        return f"{said} The answer is {choice}."
    if style.final == "tags":
        return f"<thinking> {said}</thinking> The answer is {choice}."
    if style.final == "unclosed":
        return f"<thinking> {said} The answer is {choice}."
    return f"The answer is {choice}."


def user(content: str) -> Message:
    """A message of the other speaker."""
    return {"role": "user", "content": content}


def said(content: str) -> Message:
    """A message of the policy."""
    return {"role": "assistant", "content": content}


def solve_and_answer(
    question: Question,
    told: Mapping[str, str],
    style: Style,
    rng: random.Random,
    checks: int,
    before: str,
) -> Iterator[Message]:
    """From the solving turn to the final one, with `checks` checking turns between them."""
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
    """The `reasoning` protocol with that many policy turns (at least two)."""
    told = true_values(world, question)
    yield from solve_and_answer(question, told, style, rng, turns - 2, pose(question))


def direct(world: World, question: Question, style: Style, rng: random.Random) -> Iterator[Message]:
    """The `direct` protocol: careful thought in one turn, or the letter at once."""
    yield user(f"{pose(question)}\n\n{texts.DIRECT[style.mode]}")
    yield said(_answer_at_once(question, true_values(world, question), style, rng))


def _asked(question: Question, useful: list[str], habit: str, rng: random.Random) -> str:
    """The label of the option asked about, or "" for no question."""
    if habit == "none":
        return ""
    useless = [letter for letter in LETTERS if letter not in useful]
    return rng.choice(useful if habit == "good" and useful else useless or useful)


def question_habit(prop: str, sloppiness: float, rng: random.Random) -> str:
    """Draw "good", "useless" or "none" for a question put to the other speaker."""
    chance = 1 - sloppiness * (1 - care.asking(prop))
    if rng.random() < chance:
        return "good"
    return "useless" if rng.random() < 0.8 else "none"


def clarifying(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """The `clarifying` protocol: one question about one option, then solving."""
    told = _what_is_known(world, question)
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


def _what_is_known(world: World, question: Question) -> dict[str, str]:
    values = true_values(world, question)
    return {label: UNKNOWN if label in question.unknown else v for label, v in values.items()}


def adaptive(
    world: World, question: Question, style: Style, habit: str, rng: random.Random
) -> Iterator[Message]:
    """The `clarifying-adaptive` protocol: questions or none, the marker, then one answer."""
    told, values = _what_is_known(world, question), true_values(world, question)
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
    """The labels asked about, one after the other; seldom more than one."""
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
    """The `collaboration` protocol: ask for the wish or not, then answer after the marker."""
    yield user(f"{pose(question)}\n\n{texts.COLLABORATE}")
    informed = False
    if habit == "useless":
        others = [prop for prop in PROPERTIES if prop != question.prop]
        other = care.distraction(question.prop) if rng.random() < 0.8 else rng.choice(others)
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
