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
    if name not in KINDS:
        known = ", ".join(f"scripted:{kind}" for kind in KINDS)
        raise FatalModelError(f"scripted:{name}: found no such model; expected one of: {known}")
    return KINDS[name]()


class ScriptedModel(Model):
    """Base class of scripted models: counts words as tokens and cuts after `max_tokens` of them."""

    name = "scripted"
    priced = True
    patient = True
    binds = True

    def __init__(self, example: Mapping[str, Any] | None = None) -> None:
        self.ref = f"scripted:{self.name}"
        self.example = example

    def bind(self, fields: Mapping[str, Any]) -> ScriptedModel:
        """Return a new model of the same kind, bound to the example of one conversation, whose
        answer it may use."""
        return type(self)(fields)

    def write_reply(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Return the complete reply, not cut."""
        raise NotImplementedError

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, a pure function of messages, sampling and key, at 0 dollars.

        It is cut after `max_tokens` words: then it ends with `length`, else with `stop`.
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

    It guesses the letter of its answer; bound to an example whose answer its speaker may see, it
    names the correct one more often when it is careful.
    """

    name = "policy"

    def write_reply(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Return a turn that fits the last message: a hint, a question, an opinion or a final
        answer. Some turns are careless on purpose."""
        request = text_of(messages[-1]["content"])
        texts = [text_of(m["content"]) for m in messages if m["role"] == "user"]
        asked = next((text for text in texts if OPTION.search(text)), texts[0] if texts else "")
        options: dict[str, str] = dict(OPTION.findall(asked))
        options = options or dict.fromkeys("ABCD", "this option")
        if "clarification question" in request:
            return "Compare what the question names with each option, one at a time."
        care = 0.25 + 0.7 * random.Random(hashlib.sha256(asked.encode()).digest()).random()
        letter = self._choose_letter(messages, options, rng, care)
        if "ONE specific question" in request:
            return f"What exactly does option {letter} ({options[letter]}) refer to here?"
        careful = rng.random() < care
        heard = [m for m in messages if m["role"] == "system"] + list(messages[-1:])
        thinks = any("<thinking>" in text_of(m["content"]) for m in heard)
        final = "final answer" in request
        answer = f"The answer is {letter}." if final else f"I am leaning toward {letter} so far."
        return (_careful if careful else _careless)(letter, options, answer, thinks, rng)

    def _choose_letter(
        self,
        messages: Sequence[Message],
        options: Mapping[str, str],
        rng: random.Random,
        care: float,
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
        if gold in options and rng.random() < care:
            return str(gold)
        return rng.choice(list(options))


def _careful(
    letter: str, options: Mapping[str, str], answer: str, thinks: bool, rng: random.Random
) -> str:
    fits = {
        name: "fits every part of" if name == letter else "misses a part of" for name in options
    }
    steps = [f"{name}: {text} {fits[name]} what is asked." for name, text in options.items()]
    reasons = f"Taking the options one by one. {' '.join(steps)} So option {letter} remains."
    return f"{answer} {f'<thinking>{reasons}</thinking>' if thinks else reasons}"


def _careless(
    letter: str, options: Mapping[str, str], answer: str, thinks: bool, rng: random.Random
) -> str:
    """Return a hasty turn: a guess, an unclosed tag, or an answer in no fixed form."""
    guess = f"Option {letter} sounds familiar, so I would go with it."
    kinds = [f"{answer} {guess}", f"{guess} {options[letter]}, probably."]
    if thinks:
        kinds += [f"<thinking>{guess} {answer}", f"{answer} {guess}"]
    return rng.choice(kinds)


KINDS: dict[str, type[ScriptedModel]] = {"policy": ScriptedPolicy, "echo": EchoModel}
