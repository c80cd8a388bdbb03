"""Common and uncommon words (appendix E.1.1, step 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from convbench.errors import MissingDependency
from convbench.install import with_extra
from convbench.report.patterns.responses import Response, by_policy

FREQUENCY = 0.01
"""A common word reaches this frequency in some policy."""
RATIO = 0.2
"""Frequencies of a common word differ between policies by at most this share."""
DOMAIN = frozenset(
    (
        "answer", "answers", "question", "questions", "correct", "incorrect", "option", "options",
        "choice", "choices", "final", "thinking",
    )
)  # fmt: skip
"""Words of any multiple-choice talk; the appendix names answer, question and correct."""


@cache
def always_common() -> frozenset[str]:
    """Return stop words and domain words. The stop words are scikit-learn's: none are named."""
    try:
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
    except ImportError:
        raise MissingDependency(
            "scikit-learn", needed_for="patterns", install=with_extra("analysis")
        ) from None
    return frozenset(ENGLISH_STOP_WORDS) | DOMAIN


def frequencies(found: Sequence[Response]) -> dict[str, dict[str, float]]:
    """Return policy → word → share of the policy's responses that hold the word.

    The appendix says "frequency" without saying of what; this is our reading.
    """
    out = {}
    for policy, said in by_policy(found).items():
        counts = Counter(word for response in said for word in set(response.words))
        out[policy] = {word: count / len(said) for word, count in counts.items()}
    return out


def is_common(shares: Sequence[float]) -> bool:
    """Return whether a word with these frequencies, one a policy, is common by frequency.

    The largest over the smallest is at most 1.2. Of two policies their ratio then lies in Appendix
    E's [0.8, 1.2] whichever is named first; one of 0.8 would be 1.25 the other way round.
    """
    if max(shares) < FREQUENCY or min(shares) == 0:
        return False
    return _at_most(max(shares) / min(shares), 1 + RATIO)


def _at_most(one: float, two: float) -> bool:
    """Compare with room for rounding, so that 6/5 is within 1.2."""
    return one <= two + 1e-9


def common_words(found: Mapping[str, Mapping[str, float]]) -> frozenset[str]:
    """Return the common words, given `frequencies`."""
    words = {word for shares in found.values() for word in shares}
    always = always_common()
    return frozenset(
        word
        for word in words
        if word in always or is_common([shares.get(word, 0.0) for shares in found.values()])
    )
