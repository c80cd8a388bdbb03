"""Thinking tags: where a turn thinks and where it speaks.

The rules, for `<thinking>` and `</thinking>` in any case:

- a block opens at an opening tag and closes at the next closing one; an opening tag inside an
  open block changes nothing;
- a block that is not closed runs to the end of its turn;
- a turn whose first tag is a closing one closes what an earlier turn left open: all before it is
  thinking. Where no earlier turn left anything open, that tag is a slip and hides nothing;
- any other text, stray template marks such as `[/INST]` among it, is the model's output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_TAG = re.compile(r"<\s*+(/?)\s*+thinking\s*+>", re.IGNORECASE)


def thinking(text: str) -> bool:
    """Return whether an opening `<thinking>` tag stands in the text: the `Thinking` of reports.

    The paper's "percentage of times that the model outputs <thinking> tags" (section 4).
    """
    return any(not tag[1] for tag in _TAG.finditer(text))


def closes(text: str) -> bool:
    """Return whether some `<thinking>` is followed by a `</thinking>` in the same text."""
    opened = False
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = True
        elif opened:
            return True
    return False


def left_open(earlier: Iterable[str]) -> bool:
    """Return whether these turns of one speaker, in order, leave a thinking block open."""
    opened = False
    for text in earlier:
        for tag in _TAG.finditer(text):
            opened = not tag[1]
    return opened


class Segment(NamedTuple):
    """A piece of a turn, by its place in the text; tags lie between pieces."""

    thinking: bool
    start: int
    stop: int


def segments(text: str, carried: bool = False) -> list[Segment]:
    """Return what is thought and what is said, in order; some pieces are empty.

    `carried` says that an earlier turn left a block open (`left_open`).
    """
    found: list[Segment] = []
    opened, start = False, 0
    for tag in _TAG.finditer(text):
        closing = bool(tag[1])
        if closing and not opened and carried:
            found, start = [Segment(True, 0, tag.start())], tag.end()
        elif closing == opened:
            found.append(Segment(opened, start, tag.start()))
            opened, start = not opened, tag.end()
        carried = False
    found.append(Segment(opened, start, len(text)))
    return found


def visible(text: str, carried: bool = False) -> str:
    """Return the text outside thinking blocks; a newline stands where a block was."""
    if "<" not in text:
        return text
    pieces = segments(text, carried)
    return "\n".join(text[start:stop] for thought, start, stop in pieces if not thought)
