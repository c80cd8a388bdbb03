"""A page in a text, and what it shows, in words, for a reader without eyes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from convbench.answers.enclosed import enclosed
from convbench.sandbox.page import Box

LINES = 60
_BODY = re.compile(r"<body\b", re.IGNORECASE), re.compile(r"</body\s*+>", re.IGNORECASE)
_PAGE = re.compile(r"<html\b", re.IGNORECASE), re.compile(r"</html\s*+>", re.IGNORECASE)


def first_html(text: str) -> str | None:
    """Return the first whole page in a text, else the first body of one."""
    return next(chain(_pages(text, *_PAGE), _pages(text, *_BODY)), None)


def html_of(text: str) -> str | None:
    """Return the last whole page in a text."""
    pages = list(_pages(text, *_PAGE))
    return pages[-1] if pages else None


def _pages(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> Iterator[str]:
    return (text[begin.start() : end.end()] for begin, end in enclosed(text, opening, closing))


def visible(boxes: tuple[Box, ...]) -> str:
    """Return the visible structure, top to bottom: kind, words, place."""
    lines = []
    for box in sorted(boxes, key=lambda b: (round(b.top / 20), b.left)):
        words = f" {box.words!r}" if box.words else ""
        place = f"x {box.left:.0f}-{box.left + box.width:.0f}, y {box.top:.0f}"
        lines.append(f"{box.kind} <{box.tag}>{words} at {place}")
    return "\n".join(lines[:LINES])
