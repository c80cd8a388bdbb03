"""Make foreign text safe to show: it cannot control a terminal or change text direction."""

from __future__ import annotations

import re

STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and changes of text direction."""


def make_printable(text: str) -> str:
    """Return text with each control character and change of direction replaced by U+FFFD; tabs and
    line feeds stay, and CR LF becomes LF."""
    return STEERS.sub("�", text.replace("\r\n", "\n"))
