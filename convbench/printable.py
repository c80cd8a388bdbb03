"""Text of strangers, to be shown: nothing in it steers a terminal or breaks a page."""

from __future__ import annotations

import re

STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and changes of direction."""


def printable(text: str) -> str:
    """Return text with a mark for each sign that steers: no escapes, no change of direction."""
    return STEERS.sub("�", text.replace("\r\n", "\n"))
