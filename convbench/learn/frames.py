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
ASKED = {"role": "user", "content": "hello"}
_OPENING = re.compile(r"(?:" + TAG.pattern + r")\s*\Z", TAG.flags)
_USUAL = ("<think>\n", "\n</think>\n\n")
"""Tags of most open models, for a template that shows no reasoning."""


@dataclass(frozen=True, slots=True)
class Frame:
    """How a model writes a reply under its template: `opens`, reasoning, `closes`, reply. `head`
    stands before a reply without reasoning, in templates that name the channel of each reply."""

    opens: str
    closes: str
    head: str = ""
    known: bool = True
    """False if the template shows no reasoning, so that the usual tags are assumed."""

    def around(self, prompt: str) -> tuple[str, str]:
        """Return the text (before, after) reasoning that follows this prompt; before is "" if the
        prompt ends with the opening tag."""
        opened = self.opens and prompt.endswith(self.opens)
        return ("" if opened else self.opens), self.closes


BY_MARK = {"<|channel>thought\n": Frame("<|channel>thought\n", "\n<channel|>")}
"""Frames of templates that show reasoning only before a call of a tool, by a text they contain."""


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
    """Return the length of the longest common prefix of two sequences."""
    unlike = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return next(unlike, min(len(one), len(two)))


def _rendered(render: Render, with_thought: bool) -> str:
    said: dict[str, Any] = {"role": "assistant", "content": SENTINEL}
    if with_thought:
        said |= dict.fromkeys(THOUGHT_KEYS, THOUGHT)
    return render([ASKED, said])


def _opened(text: str) -> str:
    """Return the opening reasoning tag at the end of a text with the blanks after it, or ""."""
    found = _OPENING.search(text)
    return found[0] if found and not any(found.groups()) else ""


def _head(prompt: str, plain: str, closes: str) -> str:
    """Return the name of the channel with which a reply without reasoning begins, or "". A thinking
    block that the template inserts does not count: the model did not write it."""
    if not plain.startswith(prompt) or SENTINEL not in plain:
        return ""
    found = plain[len(prompt) : plain.rindex(SENTINEL)]
    return found if found.strip() and closes.endswith(found) and not TAG.search(found) else ""
