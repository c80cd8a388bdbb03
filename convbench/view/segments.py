"""A turn cut into what it thinks and what it says, by the rules of `answers.tags`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = re.compile(r"<\s*+(/?)\s*+thinking\s*+>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a turn, without its tags."""

    thinking: bool
    text: str


def segments(text: str, carried: bool = False) -> list[Segment]:
    """Return the pieces in order; the spoken ones, joined by newlines, are `tags.visible`.

    `carried` says that an earlier turn of the speaker left a thinking block open.
    """
    found: list[Segment] = []
    opened, start = False, 0
    for tag in _TAG.finditer(text):
        closing = bool(tag[1])
        if closing and not opened and carried:
            found, start = [Segment(True, text[: tag.start()])], tag.end()
        elif closing == opened:
            found.append(Segment(opened, text[start : tag.start()]))
            opened, start = not opened, tag.end()
        carried = False
    found.append(Segment(opened, text[start:]))
    return found
