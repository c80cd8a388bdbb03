"""Grade short free answers: SQuAD's normalisation, exact match and word overlap.

Rajpurkar et al. 2016, section 6 (exact match, macro-averaged F1 over the best gold answer).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from convbench.answers.tags import visible
from convbench.judge.adaptation.recall import recall

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MARK = re.compile(r"\banswer(?: is|:)\s*", re.IGNORECASE)
_STRIP = str.maketrans("", "", string.punctuation + "–—’‘“”")


def said(reply: str) -> str:
    """Return what a reply answers: what follows its last "The answer is", else its first line;
    nothing of what it thinks."""
    reply = visible(reply)
    marks = list(_MARK.finditer(reply))
    if marks:
        return reply[marks[-1].end() :].split("\n")[0].strip()
    return next((line.strip() for line in reply.splitlines() if line.strip()), "")


def normal(text: str) -> str:
    """Return the text in lower case, without punctuation, articles and double spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_STRIP)).split())


def exact(reply: str, golds: Sequence[str]) -> float:
    """Return 1 where the answer is one of the gold ones, else 0."""
    found = normal(said(reply))
    return float(bool(found) and found in {normal(gold) for gold in golds})


def f1(reply: str, golds: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of words, for the best gold answer."""
    return max((_overlap(normal(said(reply)).split(), normal(g).split()) for g in golds), default=0)


def contains(reply: str, golds: Sequence[str]) -> float:
    """Return 1 where the words of a gold answer stand in the reply, else 0."""
    words = f" {normal(visible(reply))} "
    return float(any(normal(gold) and f" {normal(gold)} " in words for gold in golds))


def _overlap(found: list[str], gold: list[str]) -> float:
    shared = sum((Counter(found) & Counter(gold)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(found), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


GRADES: Mapping[str, Callable[[str, Sequence[str], str], float]] = {
    "recall": recall,
    "exact": lambda reply, golds, question: exact(reply, golds),
    "f1": lambda reply, golds, question: f1(reply, golds),
    "contains": lambda reply, golds, question: contains(reply, golds),
}
"""Grades that need no model, from a reply, the gold answers and the question."""
