"""Sentences that say again what was said before, but for what matters."""

from __future__ import annotations

import re
from collections.abc import Collection

from convbench.judge.review.common import COMMON

_SENTENCE = re.compile(r"[^.!?;\n]+")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+(?:['’]t)?")
_NOT = frozenset({"not", "no", "never", "without", "none", "don't", "doesn't", "shouldn't",
                  "isn't", "won't", "can't", "needn't"})  # fmt: skip
_FILLS = frozenset({"do", "does", "any", "some", "there", "should", "be", "a", "an", "the", "yes",
                    "it", "is", "sorry", "well"})  # fmt: skip
MOST = 50
"""Sentences of a turn that are looked at."""
ALIKE = 0.75
"""Share of two sentences' words that are the same."""
LEAST = 2
"""Fewest words of content that two sentences about one thing share."""


def against(text: str, earlier: str, public: Collection[str]) -> bool:
    """Whether a sentence of the text takes up one of an earlier turn with another number, the
    opposite, or another word that nobody asked for (`public`: words of what was asked)."""
    before = [_tokens(one) for one in _SENTENCE.findall(earlier)[:MOST]]
    return any(
        _opposes(_tokens(one), other, public)
        for one in _SENTENCE.findall(text)[:MOST] for other in before
    )  # fmt: skip


def _tokens(sentence: str) -> tuple[frozenset[str], bool]:
    """Return its words without fillings, and whether it is in the negative."""
    found = [token.lower().replace("’", "'") for token in _TOKEN.findall(sentence)]
    negative = sum(token in _NOT for token in found) % 2 == 1
    return frozenset(t for t in found if t not in _NOT and t not in _FILLS), negative


def _opposes(
    one: tuple[frozenset[str], bool], other: tuple[frozenset[str], bool], public: Collection[str]
) -> bool:
    (a, minus), (b, also_minus) = one, other
    shared, apart = a & b, a ^ b
    telling = {word for word in shared if word not in COMMON}
    if minus != also_minus:
        return not apart and len(shared) > (1 if telling else 2)
    if len(telling) < LEAST or len(shared) < ALIKE * max(len(a), len(b)):
        return False
    new, old = a - b, b - a
    if len(new) != 1 or len(old) != 1:
        return False
    return not apart & set(public)
