"""Where the right query stands among the four by what shows without reading it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from convbench.tasks.cosql.shared import mentions, pieces
from convbench.tasks.evening import apart, standing

_KEYWORDS = (
    "SELECT DISTINCT JOIN WHERE AND OR NOT IN LIKE BETWEEN GROUP HAVING ORDER DESC LIMIT UNION",
    "INTERSECT EXCEPT COUNT SUM AVG MIN MAX AS T1 T2",
)
_TOKENS = (*(word for line in _KEYWORDS for word in line.split()), *"=<>,.(*", "<>", ">=", "<=")


def looks(question: str, options: Sequence[str]) -> np.ndarray:
    """Return where the first option stands among all by each thing that can be counted."""
    counts = np.array([_counts(text) for text in options])
    likeness = np.hstack(
        [counts[:, -2:], np.array([_likeness(question, t) for t in options]), _alike(options)]
    )
    return np.concatenate([standing(np.hstack([counts, likeness])), apart(likeness)])


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|<>|<=|>=|[^\w\s]", text)


@lru_cache(100_000)
def _counts(text: str) -> tuple[float, ...]:
    """Return how often each token comes, how many there are, and the length."""
    found = Counter(_tokens(text))
    return (*(found[token] for token in _TOKENS), found.total(), len(text))


@lru_cache(100_000)
def _likeness(question: str, text: str) -> tuple[float, ...]:
    """Return how much a text says of a question: in words, and in pieces of three letters."""
    asked, own = set(mentions(question)), mentions(text)
    said, parts = sum(word in asked for word in own), pieces(text)
    both, common = len(asked.intersection(own)), len(parts & pieces(question))
    return (
        both, said, said / len(own), both / len(asked.union(own)), common,
        common / max(1, len(parts)),
    )  # fmt: skip


def _alike(options: Sequence[str]) -> np.ndarray:
    """Return how much each option resembles the others: on average, the nearest and the
    farthest one."""
    sets = [set(_tokens(option)) for option in options]
    shared = np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])
    others = shared[~np.eye(len(sets), dtype=bool)].reshape(len(sets), -1)
    return np.column_stack([others.mean(1), others.max(1), others.min(1)])
