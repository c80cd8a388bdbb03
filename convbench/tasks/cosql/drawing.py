"""Choose each question's wrong options such that nothing that can be counted reveals the right one.

Wrong options have the structure of right queries: of other questions, and of turns that do not
stand alone. Sets of three are drawn at random, balanced over all databases and on each by surface
features, by how plausible each option looks alone, by words and pairs of words, with sorts in place
of columns and, where several databases share them, with their names, and by how many other right
answers have an option's template: else the right one would be the one whose template is new.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from convbench.tasks import evening
from convbench.tasks.cosql.likely import likely
from convbench.tasks.cosql.looks import looks, pairs
from convbench.tasks.cosql.options import Wrong
from convbench.tasks.evening import among, standing

Texts = Mapping[str, tuple[str, str]]
"""Each question's text and its right query, by key."""

_WRONG = 3
_OFTEN = (1, 2, 4, 8, 16)
"""Limits of the kinds of how often a template occurs."""
_RIGHT, _POSSIBLE = 0.04, 0.1
"""Share of right queries that have a phrase, or of questions where it is possible, from which it is
balanced."""
_SEVERAL = 3
"""Databases on which a word must be possible to be balanced as it is."""
_WEIGHT = 2.0
"""Weight of templates and phrases relative to the ridge that holds the draw back."""
_DRAWS = 60
"""Sets of three drawn for one question."""


def choose(
    sets: Mapping[str, Sequence[Wrong]],
    texts: Texts,
    forms: Mapping[str, str],
    said: Mapping[str, Counter[str]],
    databases: Mapping[str, str],
    rng: Random,
) -> dict[str, list[Wrong]]:
    """Return three wrong options for each question; questions without fair ones are left out.

    All mappings are by question: `forms` has the template texts of the right queries, `databases`
    the databases; the counters are the right queries' phrases.
    """
    drawn = {key: _draws(wrong, rng) for key, wrong in _closed(sets).items()}
    drawn = {key: triples for key, triples in drawn.items() if triples}
    if not drawn:
        return {}
    known, usual = Counter(forms.values()), _usual(drawn, said)
    common = [word for word in _common(drawn, texts, databases) if word not in usual]
    shown = []
    for key, triples in drawn.items():
        own = _said(usual, common, said[key], pairs(texts[key][1]))
        theirs = {
            w.query.text: _said(usual, common, w.phrases, w.pairs) for t in triples for w in t
        }
        shown.append(
            [
                np.hstack(
                    [
                        looks(*_texts(texts[key], three)),
                        _WEIGHT * likely(_texts(texts[key], three)[1]),
                        _WEIGHT * _known(known, forms[key], three),
                        _WEIGHT * _leaning([own, *(theirs[w.query.text] for w in three)]),
                    ]
                )
                for three in triples
            ]
        )
    places = evening.drawn(np.array(shown), rng, [databases[key] for key in drawn])
    return {key: drawn[key][place] for key, place in zip(drawn, places, strict=True)}


def _texts(text: tuple[str, str], three: Sequence[Wrong]) -> tuple[str, list[str]]:
    """Return the question and its four options, the right one first."""
    question, right = text
    return question, [right, *(w.query.text for w in three)]


def _known(known: Counter[str], own: str, three: Sequence[Wrong]) -> np.ndarray:
    """Return how often the right query's template is that of another right query, relative to the
    wrong ones'."""
    counts = [known[form] - (form == own) for form in (own, *(w.form for w in three))]
    kinds = np.searchsorted(_OFTEN, np.array(counts), side="right")[:, None]
    return np.concatenate([standing(np.array(counts)[:, None]), among(kinds, len(_OFTEN) + 1)])


def _usual(
    drawn: Mapping[str, Sequence[Sequence[Wrong]]], said: Mapping[str, Counter[str]]
) -> list[str]:
    """Return the phrases that are in enough right queries, or possible in enough questions."""
    right = Counter(phrase for key in drawn for phrase in said[key])
    possible: Counter[str] = Counter()
    for key, triples in drawn.items():
        wrong = {w.query.text: w.phrases for three in triples for w in three}
        possible.update(set(said[key]).union(*wrong.values()))
    least = max(3, _RIGHT * len(drawn))
    enough = (p for p, n in possible.items() if right[p] >= least or n >= _POSSIBLE * len(drawn))
    return sorted(enough)


def _common(
    drawn: Mapping[str, Sequence[Sequence[Wrong]]], texts: Texts, databases: Mapping[str, str]
) -> list[str]:
    """Return the words and pairs of words, with their names, of which options can have more or
    fewer in enough questions and on several databases. What occurs on one database alone, no other
    reveals."""
    possible: Counter[str] = Counter()
    places: dict[str, set[str]] = defaultdict(set)
    for key, triples in drawn.items():
        wrong = {w.query.text: w.pairs for t in triples for w in t}
        counts = [pairs(texts[key][1]), *wrong.values()]
        for said in set().union(*counts):
            if len({one[said] for one in counts}) > 1:
                possible[said] += 1
                places[said].add(databases[key])
    least = _RIGHT * len(drawn)
    return sorted(s for s, n in possible.items() if n >= least and len(places[s]) >= _SEVERAL)


def _said(
    usual: Sequence[str], common: Sequence[str], phrases: Counter[str], own: Counter[str]
) -> np.ndarray:
    """Return how often a query has each phrase and each word, at most 2."""
    return np.array([*(min(2, phrases[p]) for p in usual), *(min(2, own[w]) for w in common)])


def _leaning(counts: Sequence[np.ndarray]) -> np.ndarray:
    """Return how much more often the first query has each than all have on average."""
    away: np.ndarray = counts[0] - np.mean(counts, axis=0)
    return away


def _closed(sets: Mapping[str, Sequence[Wrong]]) -> dict[str, list[Wrong]]:
    """Return the sets with at least three donors. Options whose donor is a question without such a
    set are dropped first, until none is left."""
    kept = {key: list(wrong) for key, wrong in sorted(sets.items())}
    while True:
        gone = sets.keys() - kept.keys()
        left = {key: [w for w in wrong if w.donor not in gone] for key, wrong in kept.items()}
        left = {key: w for key, w in left.items() if len({one.donor for one in w}) >= _WRONG}
        if left == kept:
            return kept
        kept = left


def _draws(wrong: Sequence[Wrong], rng: Random) -> list[list[Wrong]]:
    """Return the sets of three drawn for a question, or an empty list if there is none."""
    found: list[list[Wrong]] = []
    for _ in range(_DRAWS * 3):
        three: list[Wrong] = []
        while len(three) < _WRONG and (left := [w for w in wrong if _apart(w, three)]):
            three.append(rng.choice(left))
        if len(three) == _WRONG:
            found.append(three)
        if len(found) == _DRAWS:
            return found
    return rng.choices(found, k=_DRAWS) if found else []


def _apart(wrong: Wrong, drawn: Sequence[Wrong]) -> bool:
    """Return whether an option has another donor than those drawn, and databases distinguish it
    from them."""
    return all(w.donor != wrong.donor and w.told.differs(wrong.told) for w in drawn)
