"""How much the policy said."""

from __future__ import annotations

from collections.abc import Iterable


def word_count(said: Iterable[str]) -> int:
    """Return the whitespace-separated words of these turns."""
    return sum(len(text.split()) for text in said)
