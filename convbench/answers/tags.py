"""Thinking tags: which part of a turn is thinking and which is speech.

Tags are `<thinking>` and `</thinking>` in any case, and what models were trained to write instead:
`<think>`, `<thought>`, `<reasoning>`, `[THINK]`, `◁think▷`, `<|begin_of_thought|>`. The rules:

- a block opens at an opening tag and closes at the next closing one, whatever their names; an
  opening tag inside an open block changes nothing;
- a block that is not closed runs to the end of its turn;
- a turn whose first tag is a closing one closes the block that an earlier turn left open: all text
  before it is thinking. If no earlier turn left one open, `</thinking>` is a slip and hides
  nothing; `</think>` and `[/THINK]` close a block that the chat template opened in the prompt, so
  that all text before them is thinking too;
- any other text, stray template marks such as `[/INST]` included, is the model's output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_NAMES = r"(?:think(?:ing)?|thoughts?|reasoning)"
TAG = re.compile(
    rf"<\s*+(?P<a>/?)\s*+{_NAMES}\s*+>|\[(?P<b>/?)THINK\]|◁(?P<c>/?)think▷"
    r"|<\|(?:begin|(?P<d>end))_of_thought\|>",
    re.IGNORECASE,
)
_BY_TEMPLATE = re.compile(r"<\s*+/\s*+think\s*+>|\[/THINK\]|◁/think▷", re.IGNORECASE)
"""Closing tags of models whose chat template may write the opening one."""


def may_hold_tags(text: str) -> bool:
    """Return whether a text has one of the characters that tags begin with; most have none."""
    return "<" in text or "[" in text or "◁" in text


def _find_tags(text: str) -> Iterator[tuple[bool, re.Match[str]]]:
    """Yield (whether it closes, match) of each tag."""
    for tag in TAG.finditer(text):
        yield any(tag.groups()), tag


def opens_thinking(text: str) -> bool:
    """Return whether a thinking block opens in the text: the `Thinking` of reports.

    It does if it has an opening tag, closed or not, or if its first tag is `</think>`, `[/THINK]`
    or `◁/think▷`, which close a block that the chat template opened. Any other closing tag alone,
    such as `</thinking>`, does not count. The paper's "percentage of times that the model outputs
    <thinking> tags", section 4.
    """
    tags = list(_find_tags(text))
    return any(not closing for closing, _ in tags) or _opened_before(tags)


def closes_thinking(text: str) -> bool:
    """Return whether a thinking block closes in the text that was opened there, or by the chat
    template."""
    tags = list(_find_tags(text))
    opened = False
    for closing, _ in tags:
        if not closing:
            opened = True
        elif opened:
            return True
    return _opened_before(tags)


def _opened_before(tags: list[tuple[bool, re.Match[str]]]) -> bool:
    """Return whether the first tag closes a block that the chat template opened."""
    return bool(tags) and _BY_TEMPLATE.fullmatch(tags[0][1][0]) is not None


def leaves_open(earlier: Iterable[str]) -> bool:
    """Return whether these turns of one speaker, in order, leave a thinking block open: the last
    tag in them opens one. False without a tag."""
    opened = False
    for text in earlier:
        for closing, _ in _find_tags(text):
            opened = not closing
    return opened


class Segment(NamedTuple):
    """A piece of a turn between tags, and whether it is thinking."""

    thinking: bool
    start: int
    stop: int


def split_segments(text: str, carried: bool = False) -> list[Segment]:
    """Return the pieces of thinking and speech between tags, in order, with their indexes in the
    text; some are empty.

    A text without tags is one piece. `carried` says that an earlier turn left a block open: then
    all before a first closing tag is thinking.
    """
    pieces: list[Segment] = []
    tags = list(_find_tags(text))
    carried = carried or _opened_before(tags)
    opened, start = False, 0
    for closing, tag in tags:
        if closing and not opened and carried:
            pieces, start = [Segment(True, 0, tag.start())], tag.end()
        elif closing == opened:
            pieces.append(Segment(opened, start, tag.start()))
            opened, start = not opened, tag.end()
        carried = False
    pieces.append(Segment(opened, start, len(text)))
    return pieces


def first_block(text: str) -> tuple[int, int, int] | None:
    """Return (start, stop, rest) of the thinking block that a text begins with; None if it begins
    with none.

    `start` and `stop` are the indexes of its words, without blanks around them. `rest` is the index
    of the first character after the block that is no blank. A block that is not closed runs to the
    end of the text.
    """
    tags = list(_find_tags(text))
    if not tags:
        return None
    start = 0
    if not _opened_before(tags):
        if tags[0][0] or text[: tags[0][1].start()].strip():
            return None
        start = tags[0][1].end()
    end = next((tag for closing, tag in tags if closing), None)
    stop, rest = (end.start(), end.end()) if end else (len(text), len(text))
    words = text[start:stop].strip()
    start += text[start:stop].find(words)
    return start, start + len(words), rest + len(text[rest:]) - len(text[rest:].lstrip())


def without_thinking(text: str, carried: bool = False) -> str:
    """Return the text outside thinking blocks, its pieces joined by newlines; a text without tags
    is returned unchanged.

    `carried` says that an earlier turn left a block open: then all before a first closing tag is
    thinking.
    """
    if not may_hold_tags(text):
        return text
    pieces = split_segments(text, carried)
    return "\n".join(text[start:stop] for thought, start, stop in pieces if not thought)
