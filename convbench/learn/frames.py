"""Find with sentinels what a chat template writes around a reply and the reasoning before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from convbench.answers.tags import TAG
from convbench.views import SENTINEL, THOUGHT_KEYS

Render = Callable[..., str]
"""Messages and options of the template to text; `add_generation_prompt` is one of them."""
THOUGHT = SENTINEL + "thought"
QUESTION = {"role": "user", "content": "hello"}
_OPENING = re.compile(r"(?:" + TAG.pattern + r")\s*\Z", TAG.flags)
_DEFAULT_TAGS = ("<think>\n", "\n</think>\n\n")
"""Tags of most open models, for a template that shows no reasoning."""


@dataclass(frozen=True, slots=True)
class ReasoningFrame:
    """How a model writes a reply under its template: `opens`, reasoning, `closes`, reply. `head`
    stands before a reply without reasoning, in templates that name the channel of each reply."""

    opens: str
    closes: str
    head: str = ""
    known: bool = True
    """False if the template shows no reasoning, so that the usual tags are assumed."""

    def around_thought(self, prompt: str) -> tuple[str, str]:
        """Return the text (before, after) reasoning that follows this prompt; before is "" if the
        prompt ends with the opening tag."""
        opened = self.opens and prompt.endswith(self.opens)
        return ("" if opened else self.opens), self.closes


BY_MARK = {"<|channel>thought\n": ReasoningFrame("<|channel>thought\n", "\n<channel|>")}
"""Frames of templates that show reasoning only before a call of a tool, by a text they contain."""


def frame_of(render: Render, source: str) -> ReasoningFrame:
    """Return the frame of a template, whose text is `source`, by rendering a reply with and without
    reasoning.

    Templates differ in whether they open the thought in the generation prompt (`<think>`), how they
    close it, and whether a reply has a channel of its own. For one that shows no reasoning the
    usual `<think>` tags are assumed, and `known` is False, unless its marks are known.
    """
    prompt = render([QUESTION], add_generation_prompt=True)
    without_thought, thought = (
        _render_reply(render, with_thought) for with_thought in (False, True)
    )
    if THOUGHT not in thought:
        named = next((frame for mark, frame in BY_MARK.items() if mark in source), None)
        return named or ReasoningFrame(
            _opening_tag(prompt) or _DEFAULT_TAGS[0], _DEFAULT_TAGS[1], known=False
        )
    before = thought[: thought.index(THOUGHT)]
    common = shared_prefix_length(prompt, before)
    opens = _opening_tag(before[:common]) + before[common:]
    rest = thought[thought.index(THOUGHT) + len(THOUGHT) :]
    closes = rest[: rest.index(SENTINEL)] if SENTINEL in rest else _DEFAULT_TAGS[1]
    return ReasoningFrame(opens, closes, _channel_head(prompt, without_thought, closes))


def shared_prefix_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the length of the longest common prefix of two sequences."""
    unlike = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(unlike, min(len(first), len(second)))


def _render_reply(render: Render, with_thought: bool) -> str:
    message: dict[str, Any] = {"role": "assistant", "content": SENTINEL}
    if with_thought:
        message |= dict.fromkeys(THOUGHT_KEYS, THOUGHT)
    return render([QUESTION, message])


def _opening_tag(text: str) -> str:
    """Return the opening reasoning tag at the end of a text with the blanks after it, or ""."""
    match = _OPENING.search(text)
    return match[0] if match and not any(match.groups()) else ""


def _channel_head(prompt: str, without_thought: str, closes: str) -> str:
    """Return the name of the channel with which a reply without reasoning begins, or "". A thinking
    block that the template inserts does not count: the model did not write it."""
    if not without_thought.startswith(prompt) or SENTINEL not in without_thought:
        return ""
    head = without_thought[len(prompt) : without_thought.rindex(SENTINEL)]
    return head if head.strip() and closes.endswith(head) and not TAG.search(head) else ""
