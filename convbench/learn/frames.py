"""What a chat template puts around a reply and what was thought before it, found by sentinels."""

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
ASKED = {"role": "user", "content": "hello"}
_OPENING = re.compile(r"(?:" + TAG.pattern + r")\s*\Z", TAG.flags)
_USUAL = ("<think>\n", "\n</think>\n\n")
"""What most open models write, for a template without a place for reasoning."""


@dataclass(frozen=True, slots=True)
class Frame:
    """How a model writes a reply under its template: `opens`, thought, `closes`, reply; and `head`
    before a reply without thought, where every reply begins with the name of its channel."""

    opens: str
    closes: str
    head: str = ""
    known: bool = True
    """False where the template has no place for reasoning and the usual tags stand for it."""

    def around(self, prompt: str) -> tuple[str, str]:
        """Return (before, after) of a thought that follows this prompt; it may have opened it."""
        opened = self.opens and prompt.endswith(self.opens)
        return ("" if opened else self.opens), self.closes


BY_MARK = {"<|channel>thought\n": Frame("<|channel>thought\n", "\n<channel|>")}
"""Frames of templates that show reasoning only before a tool is called, by what stands in them."""


def frame_of(render: Render, source: str) -> Frame:
    """Return the frame of a template, whose text is `source`.

    Templates differ in whether they open the thought in the generation prompt (`<think>`), how
    they close it, and whether a reply has a channel of its own.
    """
    prompt = render([ASKED], add_generation_prompt=True)
    plain, thought = (_rendered(render, with_thought) for with_thought in (False, True))
    if THOUGHT not in thought:
        named = next((frame for mark, frame in BY_MARK.items() if mark in source), None)
        return named or Frame(_opened(prompt) or _USUAL[0], _USUAL[1], known=False)
    before = thought[: thought.index(THOUGHT)]
    common = shared(prompt, before)
    opens = _opened(before[:common]) + before[common:]
    rest = thought[thought.index(THOUGHT) + len(THOUGHT) :]
    closes = rest[: rest.index(SENTINEL)] if SENTINEL in rest else _USUAL[1]
    return Frame(opens, closes, _head(prompt, plain, closes))


def shared(one: Sequence[Any], two: Sequence[Any]) -> int:
    """Return how many items two sequences begin with alike."""
    unlike = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return next(unlike, min(len(one), len(two)))


def _rendered(render: Render, with_thought: bool) -> str:
    said: dict[str, Any] = {"role": "assistant", "content": SENTINEL}
    if with_thought:
        said |= dict.fromkeys(THOUGHT_KEYS, THOUGHT)
    return render([ASKED, said])


def _opened(text: str) -> str:
    """Return the tag that opens a thought at the end of a text, with the blanks after it."""
    found = _OPENING.search(text)
    return found[0] if found and not any(found.groups()) else ""


def _head(prompt: str, plain: str, closes: str) -> str:
    """Return what a reply without thought begins with: nothing, for a thinking block that a
    template puts there was not written by the model; or the name of the reply's channel."""
    if not plain.startswith(prompt) or SENTINEL not in plain:
        return ""
    found = plain[len(prompt) : plain.rindex(SENTINEL)]
    return found if found.strip() and closes.endswith(found) and not TAG.search(found) else ""
