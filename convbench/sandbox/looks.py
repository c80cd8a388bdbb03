"""A page in a text, and what it shows, in words, for a reader without eyes."""

from __future__ import annotations

import re

from convbench.sandbox.page import Box

LINES = 60
_BODY = re.compile(r"<body\b.*?</body\s*>", re.IGNORECASE | re.DOTALL)
_PAGE = re.compile(r"<html\b.*?</html\s*>", re.IGNORECASE | re.DOTALL)


def first_html(text: str) -> str | None:
    """Return the first whole page in a text, else the first body of one."""
    found = _PAGE.search(text) or _BODY.search(text)
    return found[0] if found else None


def html_of(text: str) -> str | None:
    """Return the last whole page in a text."""
    pages = _PAGE.findall(text)
    return str(pages[-1]) if pages else None


def visible(boxes: tuple[Box, ...]) -> str:
    """Return the visible structure, top to bottom: kind, words, place."""
    lines = []
    for box in sorted(boxes, key=lambda b: (round(b.top / 20), b.left)):
        words = f" {box.words!r}" if box.words else ""
        place = f"x {box.left:.0f}-{box.left + box.width:.0f}, y {box.top:.0f}"
        lines.append(f"{box.kind} <{box.tag}>{words} at {place}")
    return "\n".join(lines[:LINES])
