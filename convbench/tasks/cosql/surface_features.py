"""Surface features of questions and queries: shared words, sorts of columns, and how likely an
option looks alone.

How plausible a query looks by itself, to somebody who knows what is usually asked: question and
tables are not read, only whether a query does what hardly anybody asks for (sums
keys, orders by a code), compares texts that are given by name, lists a name, and shares words
with the other queries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from convbench.tasks.distractors import distance_features, rank_features


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
    """Return the rank features of the first option among all, by each sign and by their sum.

    They are those of `rank_features`, 3 x columns values: for every column the rank from the middle
    (-0.5 to 0.5), then for every column the chance to be the largest, then to be the smallest. The
    columns are the signs, how common the option's phrases are, and the sum. Needs two options.
    """
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
