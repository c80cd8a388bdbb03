"""Words of questions and queries, and how many they share."""

from __future__ import annotations

import re
from collections.abc import Iterable


def words(text: str) -> set[str]:
    """Return a text's set of words in lower case and singular; names are split at underscores and
    capitals."""
    return set(mentions(text))


def shared(question: Iterable[str], text: str) -> int:
    """Return how many of the question's words a text has."""
    return len(words(text).intersection(question))


def mentions(text: str) -> list[str]:
    """Return all of a text's words, with repetitions."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    return [_singular(word.lower()) for word in re.findall(r"[^\W\d]+|\d+", apart)]


def pieces(text: str) -> set[str]:
    """Return a text's set of three-letter pieces."""
    plain = " ".join(re.findall(r"\w+", text.lower()))
    return {plain[i : i + 3] for i in range(len(plain) - 2)}


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and len(word) > 2 else word
