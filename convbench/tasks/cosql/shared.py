"""Words of questions and queries, and how many they share."""

from __future__ import annotations

import re
from collections.abc import Iterable


def word_set(text: str) -> set[str]:
    """Return a text's set of words in lower case and singular; names are split at underscores and
    capitals."""
    return set(word_list(text))


def count_shared(question: Iterable[str], text: str) -> int:
    """Return how many of the question's words a text has."""
    return len(word_set(text).intersection(question))


def word_list(text: str) -> list[str]:
    """Return all of a text's words, with repetitions."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    return [_to_singular(word.lower()) for word in re.findall(r"[^\W\d]+|\d+", apart)]


def letter_trigrams(text: str) -> set[str]:
    """Return a text's set of three-letter pieces."""
    joined = " ".join(re.findall(r"\w+", text.lower()))
    return {joined[i : i + 3] for i in range(len(joined) - 2)}


def _to_singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and len(word) > 2 else word
