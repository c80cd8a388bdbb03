"""Features of the right query among the four that show without understanding it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from convbench.tasks.cosql.shared import mentions, pieces
from convbench.tasks.evening import apart, standing

_KEYWORDS = (
    "SELECT DISTINCT JOIN WHERE AND OR NOT IN LIKE BETWEEN GROUP HAVING ORDER DESC LIMIT UNION",
    "INTERSECT EXCEPT COUNT SUM AVG MIN MAX AS T1 T2",
)
_TOKENS = (*(word for line in _KEYWORDS for word in line.split()), *"=<>,.(*", "<>", ">=", "<=")


def looks(question: str, options: Sequence[str]) -> np.ndarray:
    """Return the rank features of the first option among all, by everything that can be counted."""
    counts = np.array([_counts(text) for text in options])
    likeness = np.hstack(
        [counts[:, -2:], np.array([_likeness(question, t) for t in options]), _alike(options)]
    )
    return np.concatenate([standing(np.hstack([counts, likeness])), apart(likeness)])


def tokens(text: str) -> list[str]:
    """Return a text's words, numbers and marks."""
    return re.findall(r"\w+|<>|<=|>=|[^\w\s]", text)


@lru_cache(100_000)
def _counts(text: str) -> tuple[float, ...]:
    """Return how often each token occurs, the number of tokens, and the length."""
    found = Counter(tokens(text))
    return (*(found[token] for token in _TOKENS), found.total(), len(text))


@lru_cache(100_000)
def _likeness(question: str, text: str) -> tuple[float, ...]:
    """Return how much a text shares with a question: in words, and in pieces of three letters."""
    asked, own = set(mentions(question)), mentions(text)
    said, parts = sum(word in asked for word in own), pieces(text)
    both, common = len(asked.intersection(own)), len(parts & pieces(question))
    return (
        both,
        said,
        said / len(own),
        both / len(asked.union(own)),
        common,
        common / max(1, len(parts)),
    )


def _alike(options: Sequence[str]) -> np.ndarray:
    """Return the likeness of each option to the others: on average, the nearest and the farthest
    one, and the number of changes."""
    sets = [set(tokens(option)) for option in options]
    shared = np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])
    others = shared[~np.eye(len(sets), dtype=bool)].reshape(len(sets), -1)
    changes = [sum(_changes(*sorted((a, b))) for b in options) for a in options]
    return np.column_stack([others.mean(1), others.max(1), others.min(1), changes])


@lru_cache(200_000)
def _changes(first: str, second: str) -> int:
    """Return how many tokens must be changed, added or dropped between two texts (Levenshtein)."""
    one, other = tokens(first), tokens(second)
    while one and other and one[-1] == other[-1]:
        one.pop()
        other.pop()
    row = list(range(len(other) + 1))
    for number, mine in enumerate(one, 1):
        corner, row[0] = row[0], number
        for place, theirs in enumerate(other, 1):
            least = min(row[place] + 1, row[place - 1] + 1, corner + (mine != theirs))
            corner, row[place] = row[place], least
    return row[-1]


def pairs(text: str) -> Counter[str]:
    """Return how often each token, and each pair of adjacent tokens, occurs in a text."""
    found = tokens(text)
    return Counter([*found, *(f"{a} {b}" for a, b in pairwise(found))])
