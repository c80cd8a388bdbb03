"""Patterns by K-means over common words, places by UMAP over the others (appendix E.1)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from convbench.errors import DataError, MissingDependency
from convbench.report.patterns.common import common_words, frequencies
from convbench.report.patterns.responses import Response, by_policy

K = 5
SEED = 42
TFIDF: dict[str, Any] = {"max_features": 5000, "min_df": 2, "max_df": 0.9, "sublinear_tf": True}
UMAP: dict[str, Any] = {
    "n_neighbors": 15, "min_dist": 0.1, "metric": "euclidean", "n_components": 2,
}  # fmt: skip
STARTS = 10
"""Starts of K-means, of which the best counts; the appendix is silent."""


@dataclass(frozen=True)
class Patterns:
    """What was found. Lists run along `responses`."""

    responses: list[Response]
    common: frozenset[str]
    pattern: list[int]
    """0 for the largest pattern, then by size."""
    x: list[float]
    y: list[float]
    neighbours: int
    """Neighbours UMAP took: 15, or all there are where the responses are fewer."""

    @property
    def policies(self) -> list[str]:
        """Policies, in order of appearance."""
        return list(by_policy(self.responses))


def patterns(found: Sequence[Response]) -> Patterns:
    """Analyse final responses; the same responses give the same result.

    Raises DataError where they are too few or too alike to be clustered.
    """
    said = list(found)
    common = common_words(frequencies(said))
    inside = [" ".join(w for w in r.words if w in common) for r in said]
    outside = [" ".join(w for w in r.words if w not in common) for r in said]
    labels = cluster(inside)
    x, y, neighbours = project(outside)
    return Patterns(said, common, labels, x, y, neighbours)


def cluster(texts: Sequence[str]) -> list[int]:
    """Return the pattern of each text: K-means (k = 5, seed 42) over TF-IDF, renumbered by size."""
    from sklearn.cluster import KMeans

    matrix = _tfidf(texts, "common")
    different = len({tuple(row.indices) + tuple(row.data.round(12)) for row in matrix})
    if different < K:
        raise DataError(
            f"patterns: found {different} different uses of common words in {len(texts)} "
            f"responses; expected at least {K}, one a pattern: compare more or longer responses"
        )
    found = KMeans(n_clusters=K, random_state=SEED, n_init=STARTS).fit_predict(matrix).tolist()
    order = sorted(set(found), key=lambda label: (-found.count(label), found.index(label)))
    return [order.index(label) for label in found]


def project(texts: Sequence[str]) -> tuple[list[float], list[float], int]:
    """Return the places of texts in the plane, and the number of neighbours taken."""
    try:
        umap: Any = import_module("umap")  # it has no types
    except ImportError:
        raise MissingDependency(
            "umap-learn", needed_for="patterns", install="pip install 'convbench[analysis]'"
        ) from None
    matrix = _tfidf(texts, "uncommon")
    neighbours = min(UMAP["n_neighbors"], len(texts) - 1)
    settings = {**UMAP, "n_neighbors": neighbours, "random_state": SEED, "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on small graphs it says that it starts at random
        places = umap.UMAP(**settings).fit_transform(matrix)
    return places[:, 0].tolist(), places[:, 1].tolist(), neighbours


def _tfidf(texts: Sequence[str], which: str) -> Any:
    """Return the TF-IDF matrix, rows of length 1; DataError where no word is left."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer(**TFIDF).fit_transform(texts)
    except ValueError:
        raise DataError(
            f"patterns: found no {which} word that is in at least 2 and at most 90% of the "
            f"{len(texts)} responses; compare more or longer responses"
        ) from None
