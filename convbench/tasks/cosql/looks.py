"""Features of the right query among the four that show without understanding it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from convbench.tasks.cosql.shared import letter_trigrams, word_list
from convbench.tasks.evening import distance_features, rank_features

_KEYWORDS = (
    "SELECT DISTINCT JOIN WHERE AND OR NOT IN LIKE BETWEEN GROUP HAVING ORDER DESC LIMIT UNION",
    "INTERSECT EXCEPT COUNT SUM AVG MIN MAX AS T1 T2",
)
_TOKENS = (*(word for line in _KEYWORDS for word in line.split()), *"=<>,.(*", "<>", ">=", "<=")


def surface_features(question: str, options: Sequence[str]) -> np.ndarray:
    """Return the rank features of the first option among all, by everything that can be counted."""
    counts = np.array([_token_counts(text) for text in options])
    likeness = np.hstack(
        [
            counts[:, -2:],
            np.array([_question_likeness(question, t) for t in options]),
            _option_likeness(options),
        ]
    )
    return np.concatenate(
        [rank_features(np.hstack([counts, likeness])), distance_features(likeness)]
    )


def tokenize_query(text: str) -> list[str]:
    """Return a text's words, numbers and marks."""
    return re.findall(r"\w+|<>|<=|>=|[^\w\s]", text)


@lru_cache(100_000)
def _token_counts(text: str) -> tuple[float, ...]:
    """Return how often each token occurs, the number of tokens, and the length."""
    counts = Counter(tokenize_query(text))
    return (*(counts[token] for token in _TOKENS), counts.total(), len(text))


@lru_cache(100_000)
def _question_likeness(question: str, text: str) -> tuple[float, ...]:
    """Return how much a text shares with a question: in words, and in pieces of three letters."""
    question_words, own = set(word_list(question)), word_list(text)
    hits, parts = sum(word in question_words for word in own), letter_trigrams(text)
    both, common = len(question_words.intersection(own)), len(parts & letter_trigrams(question))
    return (
        both,
        hits,
        hits / len(own),
        both / len(question_words.union(own)),
        common,
        common / max(1, len(parts)),
    )


def _option_likeness(options: Sequence[str]) -> np.ndarray:
    """Return the likeness of each option to the others: on average, the nearest and the farthest
    one, and the number of changes."""
    sets = [set(tokenize_query(option)) for option in options]
    shared = np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])
    others = shared[~np.eye(len(sets), dtype=bool)].reshape(len(sets), -1)
    changes = [sum(_edit_distance(*sorted((a, b))) for b in options) for a in options]
    return np.column_stack([others.mean(1), others.max(1), others.min(1), changes])


@lru_cache(200_000)
def _edit_distance(first: str, second: str) -> int:
    """Return how many tokens must be changed, added or dropped between two texts (Levenshtein)."""
    left, right = tokenize_query(first), tokenize_query(second)
    while left and right and left[-1] == right[-1]:
        left.pop()
        right.pop()
    row = list(range(len(right) + 1))
    for number, mine in enumerate(left, 1):
        corner, row[0] = row[0], number
        for column, theirs in enumerate(right, 1):
            least = min(row[column] + 1, row[column - 1] + 1, corner + (mine != theirs))
            corner, row[column] = row[column], least
    return row[-1]


def token_pairs(text: str) -> Counter[str]:
    """Return how often each token, and each pair of adjacent tokens, occurs in a text."""
    sequence = tokenize_query(text)
    return Counter([*sequence, *(f"{a} {b}" for a, b in pairwise(sequence))])
