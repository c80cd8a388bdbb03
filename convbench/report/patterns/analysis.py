"""Patterns by K-means over common words, places by UMAP over the others (appendix E.1)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from convbench.errors import DataError, MissingDependency
from convbench.install import with_extra
from convbench.report.patterns.common import common_words, frequencies
from convbench.report.patterns.responses import Response, by_policy

K = 5
SEED = 42
TFIDF: dict[str, Any] = {"max_features": 5000, "min_df": 2, "max_df": 0.9, "sublinear_tf": True}
UMAP: dict[str, Any] = {
    "n_neighbors": 15, "min_dist": 0.1, "metric": "euclidean", "n_components": 2,
}  # fmt: skip
FEWEST = 4
"""Texts that UMAP can place in a plane."""
STARTS = 10
"""Starts of K-means, of which the best counts; the appendix is silent."""


@dataclass(frozen=True)
class Patterns:
    """What was found. Lists run along `responses`."""

    responses: list[Response]
    common: frozenset[str]
    pattern: list[int]
    """0 for the largest pattern, then by size."""
    places: list[tuple[float, float]] | None
    """Place of each response in the plane; None where no uncommon word is left to place by."""
    neighbours: int
    """Neighbours UMAP took: 15, or all there are where the responses are fewer."""
    notes: tuple[str, ...] = ()
    """Where the data did not allow what the appendix asks for."""

    @property
    def policies(self) -> list[str]:
        """Policies, in order of appearance."""
        return list(by_policy(self.responses))

    @property
    def k(self) -> int:
        """Number of patterns."""
        return max(self.pattern) + 1


def patterns(found: Sequence[Response]) -> Patterns:
    """Analyse final responses; the same responses give the same result.

    Raises DataError where no response holds a common word.
    """
    said = list(found)
    common = common_words(frequencies(said))
    labels = cluster([" ".join(w for w in r.words if w in common) for r in said])
    outside = [" ".join(w for w in r.words if w not in common) for r in said]
    neighbours = min(UMAP["n_neighbors"], len(said) - 1)
    places = project(outside, neighbours)
    notes = []
    if max(labels) + 1 < K:
        notes.append(
            f"{max(labels) + 1} patterns in place of {K}: the {len(said)} responses use common "
            "words in no more ways."
        )
    if places is None:
        notes.append(
            "No picture: no uncommon word is in at least 2 and at most 90% of the responses."
        )
    elif neighbours < UMAP["n_neighbors"]:
        notes.append(
            f"{len(said)} responses are few: UMAP took {neighbours} neighbours in place of "
            f"{UMAP['n_neighbors']}."
        )
    return Patterns(said, common, labels, places, neighbours, tuple(notes))


def cluster(texts: Sequence[str]) -> list[int]:
    """Return the pattern of each text: K-means (k = 5, seed 42) over TF-IDF, renumbered by size.

    There are fewer patterns where the texts differ in fewer ways.
    """
    from sklearn.cluster import KMeans

    matrix = tfidf(texts)
    if matrix is None:
        raise DataError(
            f"patterns: found no common word that is in at least 2 and at most 90% of the "
            f"{len(texts)} responses; compare more or longer responses"
        )
    different = len({tuple(row.indices) + tuple(row.data.round(12)) for row in matrix})
    means = KMeans(n_clusters=min(K, different), random_state=SEED, n_init=STARTS)
    found = means.fit_predict(matrix).tolist()
    order = sorted(set(found), key=lambda label: (-found.count(label), found.index(label)))
    return [order.index(label) for label in found]


def project(texts: Sequence[str], neighbours: int) -> list[tuple[float, float]] | None:
    """Return the places of texts in the plane by UMAP over TF-IDF (seed 42); None where no word
    is in enough of them, or they are fewer than four."""
    try:
        umap: Any = import_module("umap")  # it has no types
    except ImportError:
        raise MissingDependency(
            "umap-learn", needed_for="patterns", install=with_extra("analysis")
        ) from None
    matrix = tfidf(texts)
    if matrix is None or len(texts) < FEWEST:
        return None
    settings = {**UMAP, "n_neighbors": neighbours, "random_state": SEED, "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on small graphs it says that it starts at random
        places = umap.UMAP(**settings).fit_transform(matrix)
    return [(float(x), float(y)) for x, y in places]


def tfidf(texts: Sequence[str]) -> Any:
    """Return the TF-IDF matrix, rows of length 1 or 0; None where no word is left."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer(**TFIDF).fit_transform(texts)
    except ValueError:  # an empty vocabulary, or limits that shut out every word
        return None
