"""JSON objects that stand in a reply."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 20_000
"""Characters of a reply that are read."""
TRIES = 50
"""Braces that are tried: a text of braces alone is no reason to go on for long."""


def first_object(text: str) -> dict[str, Any] | None:
    """Return the first JSON object that stands in a text; None where there is none."""
    text = text[:LONGEST]
    decoder = json.JSONDecoder()
    at, tries = text.find("{"), 0
    while at >= 0 and tries < TRIES:
        try:
            found, _ = decoder.raw_decode(text, at)
            if isinstance(found, dict):
                return found
        except (ValueError, RecursionError):
            pass
        at, tries = text.find("{", at + 1), tries + 1
    return None
