"""Scripted models for demos, load tests and tests: deterministic, offline, free."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from convbench.errors import FatalModelError
from convbench.models.model import Messages, Model
from convbench.schema import Completion, FinishReason, Message, Sampling, text_of

OPTION = re.compile(r"^[^\S\n]*+([A-J])[.)]\s++(\S(?:.*\S)?)", re.MULTILINE)
CHOICE = re.compile(r"\b(?:option|answer is|leaning toward)\s+([A-J])\b")
WORD = re.compile(r"\S+\s*")


class ScriptedModel(Model):
    """`scripted:policy` or `scripted:echo`: counts words as tokens."""

    priced = patient = binds = True

    def __init__(self, name: str = "echo") -> None:
        self.ref, self.name = f"scripted:{name}", name
        if name not in KINDS:
            known = ", ".join(f"scripted:{kind}" for kind in KINDS)
            raise FatalModelError(f"{self.ref}: found no such model; expected one of: {known}")

    async def complete(self, messages: Messages, sampling: Sampling, *, key: str) -> Completion:
        """Return the reply, a pure function of messages, sampling and key, at 0 dollars. One that
        is cut after `max_tokens` words ends with `length`, else with `stop`."""
        digest = hashlib.sha256(f"{sampling.seed}|{sampling.temperature}|{key}".encode()).digest()
        reply = KINDS[self.name](messages, self.example, random.Random(digest))
        words = WORD.findall(reply)
        text = "".join(words[: sampling.max_tokens]).rstrip()
        finish: FinishReason = "length" if len(words) > sampling.max_tokens else "stop"
        prompt = sum(len(text_of(m["content"]).split()) for m in messages)
        tokens = min(len(words), sampling.max_tokens)
        return Completion(text, finish, prompt, tokens, 0.0, self.ref)


def _echo(messages: Sequence[Message], example: Mapping[str, Any], rng: random.Random) -> str:
    return text_of(messages[-1]["content"])


def _policy(messages: Sequence[Message], example: Mapping[str, Any], rng: random.Random) -> str:
    """Return a turn about a multiple-choice question that fits the last message: a hint, a
    question, an opinion or a final answer. Some turns are careless on purpose. It keeps, mostly,
    the letter that it named before; with an answer it is right more often when it is careful."""
    request = text_of(messages[-1]["content"])
    texts = [text_of(m["content"]) for m in messages if m["role"] == "user"]
    asked = next((text for text in texts if OPTION.search(text)), texts[0] if texts else "")
    options: dict[str, str] = dict(OPTION.findall(asked)) or dict.fromkeys("ABCD", "this option")
    if "clarification question" in request:
        return "Compare what the question names with each option, one at a time."
    care = 0.25 + 0.7 * random.Random(hashlib.sha256(asked.encode()).digest()).random()
    said = [text_of(m["content"]) for m in messages if m["role"] == "assistant"]
    named = [letter for text in said for letter in CHOICE.findall(text) if letter in options]
    gold = example.get("answer")
    if named and rng.random() < 0.85:
        letter = named[-1]
    elif gold in options and rng.random() < care:
        letter = str(gold)
    else:
        letter = rng.choice(list(options))
    if "ONE specific question" in request:
        return f"What exactly does option {letter} ({options[letter]}) refer to here?"
    careful = rng.random() < care
    heard = [m for m in messages if m["role"] == "system"] + list(messages[-1:])
    thinks = any("<thinking>" in text_of(m["content"]) for m in heard)
    final = "final answer" in request
    answer = f"The answer is {letter}." if final else f"I am leaning toward {letter} so far."
    if careful:
        reasons = "Taking the options one by one. "
        for one, text in options.items():
            fits = "fits every part of" if one == letter else "misses a part of"
            reasons += f"{one}: {text} {fits} what is asked. "
        reasons += f"So option {letter} remains."
        return f"{answer} {f'<thinking>{reasons}</thinking>' if thinks else reasons}"
    guess = f"Option {letter} sounds familiar, so I would go with it."
    kinds = [f"{answer} {guess}", f"{guess} {options[letter]}, probably."]
    if thinks:  # an unclosed tag, or none
        kinds += [f"<thinking>{guess} {answer}", f"{answer} {guess}"]
    return rng.choice(kinds)


KINDS: dict[str, Callable[..., str]] = {"policy": _policy, "echo": _echo}
