"""Scripted models for demos, load tests and tests: deterministic, offline, free."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from convbench.errors import FatalModelError
from convbench.models.model import Model
from convbench.schema import Completion, FinishReason, Message, Sampling, text_of

OPTION = re.compile(r"^[^\S\n]*+([A-J])[.)]\s++(\S(?:.*\S)?)", re.MULTILINE)
CHOICE = re.compile(r"\b(?:option|answer is|leaning toward)\s+([A-J])\b")
WORD = re.compile(r"\S+\s*")


def open_scripted(name: str) -> ScriptedModel:
    """Return a new model `scripted:NAME`; the names are `policy` and `echo`.

    Raise FatalModelError for any other name.
    """
    if name not in _KINDS:
        known = ", ".join(f"scripted:{kind}" for kind in _KINDS)
        raise FatalModelError(f"scripted:{name}: found no such model; expected one of: {known}")
    return _KINDS[name]()


class ScriptedModel(Model):
    """Base class of scripted models: counts words as tokens and cuts after `max_tokens` of them."""

    name = "scripted"
    priced = True
    patient = True
    """It never waits, so a timeout would be useless work."""

    def __init__(self, example: Mapping[str, Any] | None = None) -> None:
        self.ref = f"scripted:{self.name}"
        self.example = example

    binds = True

    def bind(self, example: Mapping[str, Any]) -> ScriptedModel:
        """Return a new model of the same kind, bound to the example of one conversation, whose
        answer it may use."""
        return type(self)(example)

    def write_reply(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Return the complete reply, not cut. This class raises NotImplementedError."""
        raise NotImplementedError

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, a pure function of messages, sampling and key, at 0 dollars.

        It is cut after `max_tokens` words: then it ends with `length`, else with `stop`. Words
        count as tokens.
        """
        digest = hashlib.sha256(f"{sampling.seed}|{sampling.temperature}|{key}".encode()).digest()
        words = WORD.findall(self.write_reply(messages, random.Random(digest)))
        text = "".join(words[: sampling.max_tokens]).rstrip()
        finish: FinishReason = "length" if len(words) > sampling.max_tokens else "stop"
        prompt = sum(len(text_of(m["content"]).split()) for m in messages)
        tokens = min(len(words), sampling.max_tokens)
        return Completion(text, finish, prompt, tokens, 0.0, self.ref)


class EchoModel(ScriptedModel):
    """Repeats the last message."""

    name = "echo"

    def write_reply(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Return the text of the last message, whoever wrote it."""
        return text_of(messages[-1]["content"])


class ScriptedPolicy(ScriptedModel):
    """Talks like a policy about a multiple-choice question, sometimes carefully, sometimes not.

    Its words are made up. It guesses the letter of its answer; bound to an example whose answer its
    speaker may see, it names the correct one more often when it is careful.
    """

    name = "policy"

    def write_reply(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Return a turn that fits the last message: a hint, a question, an opinion or a final
        answer.

        Some turns are careless on purpose: a guess, an unclosed tag, or an answer in no fixed form.
        """
        request = text_of(messages[-1]["content"])
        options = _read_options(messages)
        if "clarification question" in request:
            return "Compare what the question names with each option, one at a time."
        letter = self._choose_letter(messages, options, rng)
        if "ONE specific question" in request:
            return f"What exactly does option {letter} ({options[letter]}) refer to here?"
        careful = rng.random() < self._care_chance(messages)
        final = "final answer" in request
        thinking = _wants_thinking(messages)
        return (
            _careful_turn(letter, options, final, thinking)
            if careful
            else (_careless_turn(letter, options, final, thinking, rng))
        )

    def _care_chance(self, messages: Sequence[Message]) -> float:
        """Return the probability of a careful turn, derived from the question."""
        return 0.25 + 0.7 * _seeded_rng(_question_text(messages)).random()

    def _choose_letter(
        self, messages: Sequence[Message], options: Mapping[str, str], rng: random.Random
    ) -> str:
        """Return the letter of its answer: mostly the one that it named before."""
        named = [
            letter
            for message in messages
            if message["role"] == "assistant"
            for letter in CHOICE.findall(text_of(message["content"]))
            if letter in options
        ]
        if named and rng.random() < 0.85:
            return str(named[-1])
        gold = (self.example or {}).get("answer")
        if gold in options and rng.random() < self._care_chance(messages):
            return str(gold)
        return rng.choice(list(options))


def _read_options(messages: Sequence[Message]) -> dict[str, str]:
    options: dict[str, str] = dict(OPTION.findall(_question_text(messages)))
    return options or dict.fromkeys("ABCD", "this option")


def _question_text(messages: Sequence[Message]) -> str:
    """Return the text of the user message with the options, else of the first user message."""
    texts = [text_of(m["content"]) for m in messages if m["role"] == "user"]
    return next((text for text in texts if OPTION.search(text)), texts[0] if texts else "")


def _wants_thinking(messages: Sequence[Message]) -> bool:
    heard = [m for m in messages if m["role"] == "system"] + list(messages[-1:])
    return any("<thinking>" in text_of(m["content"]) for m in heard)


def _seeded_rng(text: str) -> random.Random:
    return random.Random(hashlib.sha256(text.encode()).digest())


def _answer_line(letter: str, final: bool) -> str:
    return f"The answer is {letter}." if final else f"I am leaning toward {letter} so far."


def _careful_turn(letter: str, options: Mapping[str, str], final: bool, thinking: bool) -> str:
    steps = [
        f"{name}: {text} {'fits every part of' if name == letter else 'misses a part of'} "
        "what is asked."
        for name, text in options.items()
    ]
    reasons = f"Taking the options one by one. {' '.join(steps)} So option {letter} remains."
    if thinking:
        reasons = f"<thinking>{reasons}</thinking>"
    return f"{_answer_line(letter, final)} {reasons}"


def _careless_turn(
    letter: str, options: Mapping[str, str], final: bool, thinking: bool, rng: random.Random
) -> str:
    """Return a hasty turn: a guess, an unclosed tag, or an answer in no fixed form."""
    guess = f"Option {letter} sounds familiar, so I would go with it."
    kinds = [f"{_answer_line(letter, final)} {guess}", f"{guess} {options[letter]}, probably."]
    if thinking:
        kinds += [
            f"<thinking>{guess} {_answer_line(letter, final)}",
            f"{_answer_line(letter, final)} {guess}",
        ]
    return rng.choice(kinds)


_KINDS: dict[str, type[ScriptedModel]] = {"policy": ScriptedPolicy, "echo": EchoModel}
