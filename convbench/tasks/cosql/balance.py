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

from convbench.tasks import distractors
from convbench.tasks.cosql.options import WrongOption
from convbench.tasks.cosql.surface_features import (
    plausibility_features,
    surface_features,
    token_pairs,
)
from convbench.tasks.distractors import kind_features, rank_features

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


def choose_wrong(
    sets: Mapping[str, Sequence[WrongOption]],
    texts: Texts,
    forms: Mapping[str, str],
    phrases: Mapping[str, Counter[str]],
    databases: Mapping[str, str],
    rng: Random,
) -> dict[str, list[WrongOption]]:
    """Return three wrong options for each question; questions without fair ones are left out.

    All mappings are by question: `forms` has the template texts of the right queries, `databases`
    the databases; the counters are the right queries' phrases.
    """
    drawn = {key: _draw_triples(wrong, rng) for key, wrong in _closed_sets(sets).items()}
    drawn = {key: triples for key, triples in drawn.items() if triples}
    if not drawn:
        return {}
    known, usual = Counter(forms.values()), _usual_phrases(drawn, phrases)
    common = [word for word in _common_words(drawn, texts, databases) if word not in usual]
    shown = []
    for key, triples in drawn.items():
        own = _phrase_counts(usual, common, phrases[key], token_pairs(texts[key][1]))
        theirs = {
            w.query.text: _phrase_counts(usual, common, w.phrases, w.token_pairs)
            for t in triples
            for w in t
        }
        shown.append(
            [
                np.hstack(
                    [
                        surface_features(*_option_texts(texts[key], three)),
                        _WEIGHT * plausibility_features(_option_texts(texts[key], three)[1]),
                        _WEIGHT * _form_features(known, forms[key], three),
                        _WEIGHT * _excess_counts([own, *(theirs[w.query.text] for w in three)]),
                    ]
                )
                for three in triples
            ]
        )
    places = distractors.draw_sets(np.array(shown), rng, [databases[key] for key in drawn])
    return {key: drawn[key][index] for key, index in zip(drawn, places, strict=True)}


def _option_texts(text: tuple[str, str], three: Sequence[WrongOption]) -> tuple[str, list[str]]:
    """Return the question and its four options, the right one first."""
    question, right = text
    return question, [right, *(w.query.text for w in three)]


def _form_features(known: Counter[str], own: str, three: Sequence[WrongOption]) -> np.ndarray:
    """Return how often the right query's template is that of another right query, relative to the
    wrong ones'."""
    counts = [known[form] - (form == own) for form in (own, *(w.form for w in three))]
    kinds = np.searchsorted(_OFTEN, np.array(counts), side="right")[:, None]
    return np.concatenate(
        [rank_features(np.array(counts)[:, None]), kind_features(kinds, len(_OFTEN) + 1)]
    )


def _usual_phrases(
    drawn: Mapping[str, Sequence[Sequence[WrongOption]]], phrases: Mapping[str, Counter[str]]
) -> list[str]:
    """Return the phrases that are in enough right queries, or possible in enough questions."""
    right = Counter(phrase for key in drawn for phrase in phrases[key])
    possible: Counter[str] = Counter()
    for key, triples in drawn.items():
        wrong = {w.query.text: w.phrases for three in triples for w in three}
        possible.update(set(phrases[key]).union(*wrong.values()))
    least = max(3, _RIGHT * len(drawn))
    enough = (p for p, n in possible.items() if right[p] >= least or n >= _POSSIBLE * len(drawn))
    return sorted(enough)


def _common_words(
    drawn: Mapping[str, Sequence[Sequence[WrongOption]]], texts: Texts, databases: Mapping[str, str]
) -> list[str]:
    """Return the words and pairs of words, with their names, of which options can have more or
    fewer in enough questions and on several databases. What occurs on one database alone, no other
    reveals."""
    possible: Counter[str] = Counter()
    places: dict[str, set[str]] = defaultdict(set)
    for key, triples in drawn.items():
        wrong = {w.query.text: w.token_pairs for t in triples for w in t}
        counts = [token_pairs(texts[key][1]), *wrong.values()]
        for word in set().union(*counts):
            if len({counter[word] for counter in counts}) > 1:
                possible[word] += 1
                places[word].add(databases[key])
    least = _RIGHT * len(drawn)
    return sorted(s for s, n in possible.items() if n >= least and len(places[s]) >= _SEVERAL)


def _phrase_counts(
    usual: Sequence[str], common: Sequence[str], phrases: Counter[str], own: Counter[str]
) -> np.ndarray:
    """Return how often a query has each phrase and each word, at most 2."""
    return np.array([*(min(2, phrases[p]) for p in usual), *(min(2, own[w]) for w in common)])


def _excess_counts(counts: Sequence[np.ndarray]) -> np.ndarray:
    """Return how much more often the first query has each than all have on average."""
    away: np.ndarray = counts[0] - np.mean(counts, axis=0)
    return away


def _closed_sets(sets: Mapping[str, Sequence[WrongOption]]) -> dict[str, list[WrongOption]]:
    """Return the sets with at least three donors. Options whose donor is a question without such a
    set are dropped first, until none is left."""
    remaining = {key: list(wrong) for key, wrong in sorted(sets.items())}
    while True:
        gone = sets.keys() - remaining.keys()
        left = {key: [w for w in wrong if w.donor not in gone] for key, wrong in remaining.items()}
        left = {key: w for key, w in left.items() if len({option.donor for option in w}) >= _WRONG}
        if left == remaining:
            return remaining
        remaining = left


def _draw_triples(wrong: Sequence[WrongOption], rng: Random) -> list[list[WrongOption]]:
    """Return the sets of three drawn for a question, or an empty list if there is none."""
    triples: list[list[WrongOption]] = []
    for _ in range(_DRAWS * 3):
        three: list[WrongOption] = []
        while len(three) < _WRONG and (left := [w for w in wrong if _is_apart(w, three)]):
            three.append(rng.choice(left))
        if len(three) == _WRONG:
            triples.append(three)
        if len(triples) == _DRAWS:
            return triples
    return rng.choices(triples, k=_DRAWS) if triples else []


def _is_apart(wrong: WrongOption, drawn: Sequence[WrongOption]) -> bool:
    """Return whether an option has another donor than those drawn, and databases distinguish it
    from them."""
    return all(w.donor != wrong.donor and w.results.differs(wrong.results) for w in drawn)
