"""Thinking tags: which part of a turn is thinking and which is speech.

Tags are `<thinking>` and `</thinking>`, and what models were trained to write instead. A block
opens at an opening tag and closes at the next closing one, whatever their names, or with its turn.
A turn that begins by closing one closes what an earlier turn left open; if none did, `</thinking>`
is a slip and hides nothing, and `</think>` or `[/THINK]` close a block of the chat template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TAG = re.compile(
    r"<\s*+(?P<a>/?)\s*+(?:think(?:ing)?|thoughts?|reasoning)\s*+>|\[(?P<b>/?)THINK\]"
    r"|◁(?P<c>/?)think▷|<\|(?:begin|(?P<d>end))_of_thought\|>",
    re.IGNORECASE,
)
_OPENED_BY_TEMPLATE = re.compile(r"(?i)<\s*+/\s*+think\s*+>|\[/THINK\]|◁/think▷")


def opens_thinking(text: str) -> bool:
    """Return whether a block opens in the text or its template (Mukherjee et al. 2025, section 4:
    "percentage of times that the model outputs <thinking> tags")."""
    return any(not closing for closing, _, _ in _find_tags(text))


def closes_thinking(text: str) -> bool:
    """Return whether a block closes in the text that opened there or in its template."""
    tags = [closing for closing, _, _ in _find_tags(text)]
    return False in tags and True in tags[tags.index(False) :]


def leaves_open(earlier: Iterable[str]) -> bool:
    """Return whether a speaker's turns, in order, leave a thinking block open."""
    tags = [tag for text in earlier for tag in _find_tags(text)]
    return bool(tags) and not tags[-1][0]


def split_segments(text: str, carried: bool = False) -> list[tuple[bool, int, int]]:
    """Return (whether it is thinking, start, stop) of the pieces between tags, in order; some are
    empty. `carried` says that an earlier turn left a block open."""
    pieces: list[tuple[bool, int, int]] = []
    tags, start = _find_tags(text, carried), 0
    opened = bool(tags) and tags[0][2] == 0
    for closing, at, end in tags[opened:]:
        if closing == opened:
            pieces.append((opened, start, at))
            opened, start = not opened, end
    return [*pieces, (opened, start, len(text))]


def without_thinking(text: str, carried: bool = False) -> str:
    """Return the text outside thinking blocks, its pieces joined by newlines."""
    pieces = split_segments(text, carried)
    return "\n".join(text[start:stop] for thinking, start, stop in pieces if not thinking)


def _find_tags(text: str, carried: bool = False) -> list[tuple[bool, int, int]]:
    """Return (whether it closes, start, end) of each tag; (False, 0, 0) is first where the first
    one closes a block that was open before the text."""
    tags = [(any(tag.groups()), tag.start(), tag.end()) for tag in TAG.finditer(text)]
    if tags and tags[0][0] and (carried or _OPENED_BY_TEMPLATE.match(text, tags[0][1])):
        return [(False, 0, 0), *tags]
    return tags
