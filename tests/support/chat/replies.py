"""What the local provider says: a pure function of the request, so that runs repeat exactly.

`scripted_reply` plays a policy in the protocols of the specification (appendices E.1, E.2, F.1)
and the rubric evaluator of appendix E.3. Its answers are made up; only their form is real.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .shopper import NEEDS, shopper

METRICS = (
    "Accuracy",
    "Reasoning ability",
    "Comprehensiveness",
    "Pedagogical value",
    "Confidence calibration",
    "Overall",
)
OPTION = re.compile(r"(?:^|\n|\s)([A-J])[.)]\s+(\S.*?)(?=\s+[A-J][.)]\s|\n|$)")
ANSWER = re.compile(r"answer is\W*([A-J])\b", re.IGNORECASE)
NONCE = re.compile(r"\b[0-9a-f]{12}\b")
"""Of a transcript's fence, another one in every run: scores do not hang on it."""
GOLD = re.compile(r"Correct Answer:\W*([A-J])\b")


@dataclass(frozen=True)
class Call:
    """One completion request, whichever API it came through. `messages` hold plain text."""

    model: str
    messages: tuple[tuple[str, str], ...]
    """(role, text) pairs, system messages included."""
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The request as it came."""

    @property
    def system(self) -> str:
        """All system text."""
        return "\n".join(text for role, text in self.messages if role == "system")

    @property
    def asked(self) -> str:
        """The last user message."""
        return next((text for role, text in reversed(self.messages) if role == "user"), "")

    @property
    def question(self) -> str:
        """The first user message: the question and its choices."""
        return next((text for role, text in self.messages if role == "user"), "")

    @property
    def text(self) -> str:
        """All messages."""
        return "\n".join(text for _, text in self.messages)

    @property
    def words(self) -> int:
        """Prompt size in words, which this provider counts as tokens, 4 more for each message."""
        return sum(len(text.split()) + 4 for _, text in self.messages)


Reply = Callable[[Call], str]


def scripted_reply(call: Call) -> str:
    """The reply to `call`: rubric scores for an evaluator, else a turn of a conversation."""
    if all(f"{metric}:" in call.system for metric in METRICS):
        return rubric(call)
    if call.body.get("tools") and NEEDS.search(call.question):
        return shopper(call)
    if "clarification question" in call.asked:
        return "Look closely at what the question names first, then compare each option with it."
    if "ONE specific question" in call.asked:
        return f"What exactly does option {_letter(call)} refer to in this question?"
    return _answer(call)


def rubric(call: Call) -> str:
    """Scores 0-10 in the exact form of appendix E.3, higher when the last answer is the gold."""
    rng = _rng(call, NONCE.sub("", call.question))
    gold, answers = GOLD.findall(call.asked), ANSWER.findall(call.asked)
    right = bool(gold and answers and answers[-1].upper() == gold[-1])
    base = 7 if right else 3
    lines = []
    for metric in METRICS:
        score = base + rng.randint(-1, 2)
        lines.append(f"{metric}: {score}\n{_justification(metric, right)}")
    return "\n\n".join(lines)


def _answer(call: Call) -> str:
    options = dict(OPTION.findall(call.question)) or dict.fromkeys("ABCD", "this option")
    letter = _letter(call)
    steps = " ".join(
        f"Option {name} ({text.rstrip('.')}) {_verdict(name == letter)}"
        for name, text in options.items()
    )
    turn = sum(role == "user" for role, _ in call.messages)
    opening = f"The answer is {letter}." if "final answer" in call.asked else _opening(turn, letter)
    if "<thinking>" in call.asked or "<thinking>" in call.system:
        return f"{opening} <thinking>{steps}</thinking>"
    return f"{opening} {steps}"


def _letter(call: Call) -> str:
    letters = [name for name, _ in OPTION.findall(call.question)] or list("ABCD")
    letter: str = _rng(call, call.question).choice(letters)
    return letter


def _rng(call: Call, text: str) -> random.Random:
    key = f"{call.model}|{call.temperature}|{call.seed}|{text}"
    return random.Random(hashlib.sha256(key.encode()).digest())


def _opening(turn: int, letter: str) -> str:
    if turn == 1:
        return f"My initial thoughts point to option {letter}."
    return f"Looking at the other options again, I still prefer option {letter}."


def _verdict(chosen: bool) -> str:
    if chosen:
        return "fits what the question asks."
    return "does not fit what the question asks."


def _justification(metric: str, right: bool) -> str:
    direction = "moves toward" if right else "moves away from"
    return f"For {metric.lower()}, the assistant {direction} the correct answer."


def fixed_reply(text: str) -> Reply:
    """A reply function that always says `text`."""
    return lambda _call: text
