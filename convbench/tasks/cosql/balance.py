"""Choosing among possible option sets, such that over all questions form does not tell the gold.

What a logistic regression can learn first is the sum, over questions, of how the gold's features
differ from the mean of its options': its gradient where all weights are zero. So of each
question's candidates the one is taken that keeps this sum near half of what it would be were
the gold a random one of the four. Golds that tend to be the shortest of their options are made
up for by ones that are the longest; many without DISTINCT among options with it, by some the
other way.
Near chance, not near zero: were the sum zero, any part of the questions would tell the gold of
the rest, by what that part has too much of.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from random import Random

_TOKEN = re.compile(r"\w+|[^\w\s]+")
_SCALES = {"characters": 0.125, "tokens": 0.5, "words": 0.5, "digits": 1.0}
_CHANCE = 0.5
"""How far the sum follows chance. At 0 held-out golds are told too seldom, at 1 too often (the
regression also learns from how features go together); half way comes out even, measured."""
_SHORTEST, _RANK, _WORD = 2.0, 0.5, 0.5
"""What a feature weighs. Weights are powers of two and there are four options, so that all sums
are exact and every machine chooses alike."""


class Balance:
    """The running sum of differences between golds and chance."""

    def __init__(self) -> None:
        self._sum: defaultdict[str, float] = defaultdict(float)

    def choose(self, candidates: Sequence[Sequence[str]], rng: Random) -> int:
        """Return which candidate to take, and count it. The gold is the first of each four."""
        random = list(rng.choice(candidates))
        rng.shuffle(random)
        for name, value in _difference(random).items():
            self._sum[name] -= _CHANCE * value
        differences = [_difference(options) for options in candidates]
        best = min(range(len(candidates)), key=lambda i: self._worse(differences[i]))
        for name, value in differences[best].items():
            self._sum[name] += value
        return best

    def _worse(self, difference: dict[str, float]) -> float:
        """Return by how much the sum's squared length would grow."""
        return sum(value * (2 * self._sum[name] + value) for name, value in difference.items())


def _difference(options: Sequence[str]) -> dict[str, float]:
    """Return the gold's features less the mean of all options'."""
    tokens = [_TOKEN.findall(option) for option in options]
    sizes = {
        "characters": [len(option) for option in options],
        "tokens": [len(found) for found in tokens],
        "words": [len(option.split()) for option in options],
        "digits": [sum(c.isdigit() for c in option) for option in options],
    }
    features = [_words(found) for found in tokens]
    for name, values in sizes.items():
        for own, feature in zip(values, features, strict=True):
            feature[f" {name}"] = own * _SCALES[name]
            feature[f" {name}: fewest"] = _SHORTEST * (own == min(values))
            feature[f" {name}: most"] = _SHORTEST * (own == max(values))
            feature[f" {name}: fewer"] = _RANK * sum(own > value for value in values)
            feature[f" {name}: more"] = _RANK * sum(own < value for value in values)
    names = sorted({name for feature in features for name in feature})
    columns = {name: [feature.get(name, 0.0) for feature in features] for name in names}
    return {name: column[0] - sum(column) / len(column) for name, column in columns.items()}


def _words(tokens: Sequence[str]) -> dict[str, float]:
    """Return how often each token comes. Their names cannot meet those of the sizes (a space)."""
    return {token: _WORD * count for token, count in Counter(tokens).items()}
