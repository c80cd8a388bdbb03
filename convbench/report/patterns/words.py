"""What the picture cannot say: diversity, and the words that tell one corpus from the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from convbench.report.patterns.responses import Response

Words = Sequence[str]


def distinct(texts: Iterable[Words], n: int) -> float | None:
    """Return distinct-n: different n-grams over all n-grams, none across two texts (Li et al.
    2016, "A diversity-promoting objective function"); None without an n-gram."""
    grams = Counter(tuple(words[i : i + n]) for words in texts for i in range(len(words) - n + 1))
    total = grams.total()
    return len(grams) / total if total else None


def first_words(texts: Iterable[Words], limit: int) -> list[Words]:
    """Return the texts in order until `limit` words are reached, the last one cut: distinct-n
    and vocabulary depend on how much is looked at, so that policies are compared on as much."""
    out: list[Words] = []
    for words in texts:
        if limit <= 0:
            break
        out.append(words[:limit])
        limit -= len(words)
    return out


def vocabulary(texts: Iterable[Words]) -> int:
    """Return the number of different words."""
    return len({word for words in texts for word in words})


def telling(inside: Iterable[Response], outside: Iterable[Response], top: int = 10) -> list[str]:
    """Return the words that tell `inside` from `outside`, the most telling first.

    By the z score of the log-odds ratio with an informative Dirichlet prior, the words' counts
    over both (Monroe, Colaresi and Quinn 2008, "Fightin' words", eq. 16-22).
    """
    one = Counter(word for response in inside for word in response.words)
    two = Counter(word for response in outside for word in response.words)
    prior = one + two
    n_one, n_two, n_prior = one.total(), two.total(), prior.total()
    scores = {}
    for word, a in prior.items():
        first, second = one[word] + a, two[word] + a
        rest_one, rest_two = n_one + n_prior - first, n_two + n_prior - second
        if rest_one <= 0 or rest_two <= 0:
            continue
        delta = math.log(first / rest_one) - math.log(second / rest_two)
        scores[word] = delta / math.sqrt(1 / first + 1 / second)
    best = sorted(scores, key=lambda word: (-scores[word], word))
    return [word for word in best[:top] if scores[word] > 0]
