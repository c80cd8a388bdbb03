"""How plausible each of several queries looks by itself, to somebody who knows what is usually
asked.

Question and tables are not read, only whether a query does what hardly anybody asks for (sums keys,
orders by a code), compares texts that are given by name, lists a name, and shares words with the
other queries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from convbench.tasks.cosql.looks import token_pairs
from convbench.tasks.evening import rank_features

_KEY = r"(?:\w+\.)?\w*(?:id|code|key)\b"
_SUMMED = re.compile(r"\b(?:avg|sum|max|min)\((?:distinct )?(?:\w+\.)?(\w+)\)")
_NO_SIZE = re.compile(r"id$|code|name|title|phone|zip")
_ODD = re.compile(rf"\border by {_KEY}|(?:id|code|name|title) (?:[<>]=?) ")
_NAMED = re.compile(
    r"(?:name|title|country|city|type|status|language|continent|nation\w{0,8}) "
    r"(?:=|<>|!=|like) '"
)
_TITLE, _ID = re.compile(r"name|title"), re.compile(r"id\b|code\b")


def plausibility_features(options: Sequence[str]) -> np.ndarray:
    """Return the rank features of the first option among all, by each sign and by their sum."""
    phrase_sets = [set(token_pairs(option.lower())) for option in options]
    shared = Counter(part for phrases in phrase_sets for part in phrases)
    common = [sum(shared[part] for part in phrases) / len(phrases) for phrases in phrase_sets]
    signs = np.column_stack([np.array([_plausibility_signs(option) for option in options]), common])
    even = (signs - signs.mean(0)) / (signs.std(0) + 1e-9)
    return rank_features(np.column_stack([signs, even.sum(1)]))


@lru_cache(100_000)
def _plausibility_signs(option: str) -> tuple[int, int]:
    """Return how much sense a query makes, and whether it lists a name rather than a key."""
    text = option.lower()
    listed = text.partition(" from ")[0]
    summed = _SUMMED.findall(text)
    odd = sum(_NO_SIZE.search(column) is not None for column in summed)
    sense = len(summed) - 3 * odd - 2 * len(_ODD.findall(text)) + len(_NAMED.findall(text))
    return sense, bool(_TITLE.search(listed)) - bool(_ID.search(listed))
