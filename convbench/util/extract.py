"""Find what stands between marks, and JSON objects, in a text of any size, in linear time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_CHARACTERS = 20_000
"""Characters in which a JSON object is looked for."""
MOST_BRACES = 50
"""Braces that are tried, so that a text of braces alone takes bounded time."""


def find_enclosed(
    text: str, opening: re.Pattern[str], closing: re.Pattern[str]
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield (opening mark, first closing mark after it) for each opening mark, in order, as
    matches.

    Openings between the two are skipped, and so are those that are not closed.
    """
    begin = opening.search(text)
    while begin is not None and (end := closing.search(text, begin.end())) is not None:
        yield begin, end
        begin = opening.search(text, end.end())


def first_object(text: str) -> dict[str, Any] | None:
    """Return the first JSON object in the first 20,000 characters of a text, whatever surrounds it.

    None without one, or if no object begins at one of the first 50 opening braces.
    """
    text = text[:MOST_CHARACTERS]
    decoder = json.JSONDecoder()
    at, tries = text.find("{"), 0
    while at >= 0 and tries < MOST_BRACES:
        try:
            value, _ = decoder.raw_decode(text, at)
            if isinstance(value, dict):
                return value
        except (ValueError, RecursionError):
            pass
        at, tries = text.find("{", at + 1), tries + 1
    return None
