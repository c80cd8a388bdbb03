"""Language patterns by K-means over common words, coordinates by UMAP over the others, diversity
and spread (appendix E.1.1).
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from itertools import compress
from statistics import fmean, quantiles
from typing import Any

from convbench.errors import DataError, MissingDependency, RunError
from convbench.reports.policies import (
    Policy,
    read_policies,
    read_policy,
    sort_policies,
    with_unique_names,
)
from convbench.store import Run
from convbench.util.install import with_extra
from convbench.views import final_text

WORD = re.compile(r"(?u)\b\w\w+\b")
"""A word: two or more letters or digits, as in scikit-learn's vectorizers."""


@dataclass(frozen=True)
class Response:
    """The final response of one conversation."""

    policy: str
    conversation_id: str
    group: str
    text: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Return its words of two or more letters or digits, in lower case and in order."""
        return tuple(WORD.findall(self.text.lower()))


def read_responses(runs: Sequence[Run], split: str = "test") -> list[Response]:
    """Return the final responses of every policy, Base first, then in the order of the papers'
    tables.

    Several runs are one policy each, in any order; a single run also brings its children.
    Conversations that failed are left out. Raise RunError for fewer than two policies,
    or one without conversations of the split.
    """
    if len(runs) == 1:
        policies = read_policies(runs[0], split)
    else:
        policies = [read_policy(run, split) for run in runs]
    if len(policies) < 2:
        raise RunError(
            f"{runs[0].path}: found one policy; expected two or more: name several runs, e.g. "
            "convbench patterns RUN RUN/evals/swift, or evaluate one first: convbench eval"
        )
    policies = sort_policies(sorted(policies, key=lambda policy: policy.run.manifest.id))
    policies.sort(key=lambda policy: not policy.is_base)
    final_responses = responses_of(with_unique_names(policies))
    empty = [p.run.path for p in policies if not p.observations]
    if empty:
        raise RunError(f"{empty[0]}: found no conversations of split {split}; expected some")
    return final_responses


def responses_of(policies: Sequence[Policy]) -> list[Response]:
    """Return the final responses of these policies in their order; of a pooled policy those of all
    its runs.

    Conversations that failed, those of other splits and those without a final response
    are left out.
    """
    return [
        response
        for policy in policies
        for member in policy.run_policies
        for response in _policy_responses(member, policy.name)
    ]


def _policy_responses(policy: Policy, name: str) -> Iterator[Response]:
    examples, protocol = policy.run.examples, policy.run.manifest.protocol
    talks = (t for t in policy.run.conversations() if t.failure is None)
    for talk in sorted(talks, key=lambda t: t.key):
        example = examples.get(talk.example_id)
        if example is None or policy.split not in ("all", example.split):
            continue
        text = final_text(protocol, talk)
        if text is not None:
            yield Response(name, talk.conversation_id, example.group_id, text)


def by_policy(responses: Sequence[Response]) -> dict[str, list[Response]]:
    """Return the responses by policy, in order of appearance."""
    out: dict[str, list[Response]] = {}
    for response in responses:
        out.setdefault(response.policy, []).append(response)
    return out


FREQUENCY = 0.01
"""Least frequency of a common word, in at least one policy."""
RATIO = 0.2
"""Largest relative difference of a common word's frequencies between policies."""
DOMAIN = frozenset(
    (
        "answer",
        "answers",
        "question",
        "questions",
        "correct",
        "incorrect",
        "option",
        "options",
        "choice",
        "choices",
        "final",
        "thinking",
    )
)
"""Words of any multiple-choice conversation. The appendix names answer, question and correct."""


@cache
def always_common() -> frozenset[str]:
    """Return scikit-learn's English stop words and the words in DOMAIN; the appendix names no list.

    Raise MissingDependency without scikit-learn.
    """
    try:
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
    except ImportError:
        raise MissingDependency(
            "scikit-learn", needed_for="patterns", install=with_extra("analysis")
        ) from None
    return frozenset(ENGLISH_STOP_WORDS) | DOMAIN


def word_frequencies(responses: Sequence[Response]) -> dict[str, dict[str, float]]:
    """Return policy → word → share of the policy's responses that contain the word.

    The appendix says "frequency" without a definition; this is our reading.
    """
    out = {}
    for policy, own_responses in by_policy(responses).items():
        counts = Counter(word for response in own_responses for word in set(response.words))
        out[policy] = {word: count / len(own_responses) for word, count in counts.items()}
    return out


def is_common(shares: Sequence[float]) -> bool:
    """Return True if a word with these frequencies, one a policy, is common by frequency.

    The largest is at least 0.01, the smallest above 0, and the largest over the smallest at most
    1.2. Of two policies their ratio then lies in Appendix E's [0.8, 1.2] whichever is named first;
    one of 0.8 would be 1.25 the other way round.
    """
    if max(shares) < FREQUENCY or min(shares) == 0:
        return False
    return _at_most(max(shares) / min(shares), 1 + RATIO)


def _at_most(value: float, limit: float) -> bool:
    """Return True if a number is at most another, up to rounding: 6/5 is within 1.2."""
    return value <= limit + 1e-9


def common_words(frequencies: Mapping[str, Mapping[str, float]]) -> frozenset[str]:
    """Return the common words, from frequencies by policy and word: those in `always_common`, and
    those that `is_common` accepts.

    Only words in `frequencies` are returned. A word that a policy lacks has frequency 0 there.
    Raise MissingDependency without scikit-learn.
    """
    words = {word for shares in frequencies.values() for word in shares}
    always = always_common()
    return frozenset(
        word
        for word in words
        if word in always or is_common([shares.get(word, 0.0) for shares in frequencies.values()])
    )


Words = Sequence[str]


def distinct_n(texts: Iterable[Words], n: int) -> float | None:
    """Return distinct-n: the number of different n-grams over that of all n-grams, none across two
    texts (Li et al. 2016, "A diversity-promoting objective function"). None without an n-gram."""
    grams = Counter(tuple(words[i : i + n]) for words in texts for i in range(len(words) - n + 1))
    total = grams.total()
    return len(grams) / total if total else None


def first_words(texts: Iterable[Words], limit: int) -> list[Words]:
    """Return the first texts with `limit` words in all, the last one cut. Distinct-n and
    vocabulary depend on the amount of text, so policies are compared on equal amounts."""
    out: list[Words] = []
    for words in texts:
        if limit <= 0:
            break
        out.append(words[:limit])
        limit -= len(words)
    return out


def vocabulary_size(texts: Iterable[Words]) -> int:
    """Return the number of different words."""
    return len({word for words in texts for word in words})


def telling_words(
    inside: Iterable[Response], outside: Iterable[Response], top: int = 10
) -> list[str]:
    """Return at most `top` words that distinguish `inside` from `outside`, the largest z score
    first; only words with a positive score.

    The score is that of the log-odds ratio with an informative Dirichlet prior, the words' counts
    over both (Monroe, Colaresi and Quinn 2008, "Fightin' words", eq. 16-22). Equal scores are in
    alphabetical order.
    """
    inside_counts = Counter(word for response in inside for word in response.words)
    outside_counts = Counter(word for response in outside for word in response.words)
    prior = inside_counts + outside_counts
    n_one, n_two, n_prior = inside_counts.total(), outside_counts.total(), prior.total()
    scores = {}
    for word, a in prior.items():
        first, second = inside_counts[word] + a, outside_counts[word] + a
        rest_one, rest_two = n_one + n_prior - first, n_two + n_prior - second
        if rest_one <= 0 or rest_two <= 0:
            continue
        delta = math.log(first / rest_one) - math.log(second / rest_two)
        scores[word] = delta / math.sqrt(1 / first + 1 / second)
    best = sorted(scores, key=lambda word: (-scores[word], word))
    return [word for word in best[:top] if scores[word] > 0]


K = 5
SEED = 42
TFIDF: dict[str, Any] = {"max_features": 5000, "min_df": 2, "max_df": 0.9, "sublinear_tf": True}
UMAP: dict[str, Any] = {
    "n_neighbors": 15,
    "min_dist": 0.1,
    "metric": "euclidean",
    "n_components": 2,
}
FEWEST = 4
"""Fewest texts that UMAP can embed in a plane."""
STARTS = 10
"""Restarts of K-means, of which the best counts. The appendix does not say."""


@dataclass(frozen=True)
class Patterns:
    """The result of the analysis. Lists have one item a response."""

    responses: list[Response]
    common: frozenset[str]
    pattern: list[int]
    """Pattern of each response: 0 for the largest pattern, then by size."""
    coordinates: list[tuple[float, float]] | None
    """Position of each response in the plane; None if no uncommon word is left to embed them by."""
    neighbours: int
    """Number of neighbours that UMAP used: 15, or fewer if there are fewer responses."""
    notes: tuple[str, ...] = ()
    """Notes on deviations from the appendix that the data required."""

    @property
    def policies(self) -> list[str]:
        """Return the policies' names, in order of appearance."""
        return list(by_policy(self.responses))

    @property
    def k(self) -> int:
        """Return the number of patterns."""
        return max(self.pattern) + 1


def analyse_patterns(responses: Sequence[Response]) -> Patterns:
    """Return patterns, coordinates and common words of final responses.

    The same responses give the same result.

    Coordinates are None if no uncommon word is usable or there are fewer than four responses. Raise
    DataError if no common word is usable, MissingDependency without scikit-learn or UMAP.
    """
    documents = list(responses)
    common = common_words(word_frequencies(documents))
    labels = cluster_texts([" ".join(w for w in r.words if w in common) for r in documents])
    outside = [" ".join(w for w in r.words if w not in common) for r in documents]
    neighbours = min(UMAP["n_neighbors"], len(documents) - 1)
    coordinates = project_texts(outside, neighbours)
    notes = []
    if max(labels) + 1 < K:
        notes.append(
            f"{max(labels) + 1} patterns in place of {K}: the {len(documents)} responses use "
            "common "
            "words in no more ways."
        )
    if coordinates is None:
        notes.append(
            "No picture: no uncommon word is in at least 2 and at most 90% of the responses."
        )
    elif neighbours < UMAP["n_neighbors"]:
        notes.append(
            f"{len(documents)} responses are few: UMAP took {neighbours} neighbours in place of "
            f"{UMAP['n_neighbors']}."
        )
    return Patterns(documents, common, labels, coordinates, neighbours, tuple(notes))


def cluster_texts(texts: Sequence[str]) -> list[int]:
    """Return the pattern of each text: K-means (k = 5, seed 42) over TF-IDF, renumbered so that 0
    is the largest.

    There are fewer patterns if fewer texts are distinct. Raise DataError if no word is in at least
    2 and at most 90% of the texts.
    """
    from sklearn.cluster import KMeans

    matrix = tfidf_matrix(texts)
    if matrix is None:
        raise DataError(
            f"patterns: found no common word that is in at least 2 and at most 90% of the "
            f"{len(texts)} responses; compare more or longer responses"
        )
    different = len({tuple(row.indices) + tuple(row.data.round(12)) for row in matrix})
    means = KMeans(n_clusters=min(K, different), random_state=SEED, n_init=STARTS)
    labels = means.fit_predict(matrix).tolist()
    order = sorted(set(labels), key=lambda label: (-labels.count(label), labels.index(label)))
    return [order.index(label) for label in labels]


def project_texts(texts: Sequence[str], neighbours: int) -> list[tuple[float, float]] | None:
    """Return the coordinates (x, y) of each text by UMAP over TF-IDF (seed 42).

    None if no word is in at least 2 and at most 90% of the texts, or there are fewer than four
    texts. Raise MissingDependency without UMAP.
    """
    try:
        umap: Any = import_module("umap")  # it has no types
    except ImportError:
        raise MissingDependency(
            "umap-learn", needed_for="patterns", install=with_extra("analysis")
        ) from None
    matrix = tfidf_matrix(texts)
    if matrix is None or len(texts) < FEWEST:
        return None
    settings = {**UMAP, "n_neighbors": neighbours, "random_state": SEED, "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on small graphs it warns of a random initialisation
        places = umap.UMAP(**settings).fit_transform(matrix)
    return [(float(x), float(y)) for x, y in places]


def tfidf_matrix(texts: Sequence[str]) -> Any:
    """Return scikit-learn's sparse TF-IDF matrix (texts, words).

    The words are those of two characters or more in at least 2 and at most 90% of the texts, of
    these the 5000 most frequent. Rows have norm 1, or 0 for a text without such a word. None if
    there is no such word.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer(**TFIDF).fit_transform(texts)
    except ValueError:  # an empty vocabulary, or limits that exclude every word
        return None


WHISKER = 1.5
"""Interquartile ranges above the third quartile beyond which a distance is an outlier (Tukey)."""
MOST = 1500
"""Most responses of which all distances are computed; of more, about as many, evenly spaced."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What the picture shows, as numbers; None if there is too little to measure."""

    responses: int
    distance: float | None
    """Mean cosine distance between two responses: the larger, the less dense."""
    by_policy: dict[str, float | None]
    """The same within each policy."""
    separation: float | None
    """Share of the 15 nearest neighbours that are of the same policy, minus the share by chance."""
    largest_share: float
    """Share of the responses in the largest pattern."""
    effective_patterns: float
    """Effective number of patterns, the exponential of their entropy."""
    outliers: float | None
    """Share of the responses whose distance to the nearest neighbour is an outlier."""


def measure_spread(analysis: Patterns) -> Spread:
    """Return mean distances, separation of policies, use of patterns and outliers of an analysis.

    Distances are cosine distances by uncommon words, computed for at most 1500 responses that have
    one. They are None with fewer than two such responses.
    """
    shares = [analysis.pattern.count(k) / len(analysis.pattern) for k in range(analysis.k)]
    entropy = -math.fsum(share * math.log(share) for share in shares)
    distances, policies = _response_distances(analysis)
    nearest = [min(row) for row in _off_diagonal(distances)]
    return Spread(
        responses=len(analysis.responses),
        distance=_mean_distance(distances),
        by_policy={
            name: _mean_distance(_within_policy(distances, policies, name))
            for name in analysis.policies
        },
        separation=_policy_separation(distances, policies),
        largest_share=max(shares),
        effective_patterns=math.exp(entropy),
        outliers=_far_out(nearest),
    )


def _response_distances(analysis: Patterns) -> tuple[list[list[float]], list[str]]:
    """Return the distance matrix of responses with an uncommon word, and their policies."""
    outside = [" ".join(w for w in r.words if w not in analysis.common) for r in analysis.responses]
    matrix: Any = tfidf_matrix(outside)
    if matrix is None:
        return [], []
    indices = [index for index in range(matrix.shape[0]) if matrix[index].nnz]
    step = max(1, math.ceil(len(indices) / MOST))
    indices = indices[::step]
    if len(indices) < 2:
        return [], []
    close = (matrix[indices] @ matrix[indices].T).toarray()
    distances = [[max(0.0, 1.0 - value) for value in row] for row in close.tolist()]
    return distances, [analysis.responses[index].policy for index in indices]


def _off_diagonal(distances: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[d for j, d in enumerate(row) if j != i] for i, row in enumerate(distances)]


def _mean_distance(distances: Sequence[Sequence[float]]) -> float | None:
    values = [d for row in _off_diagonal(distances) for d in row]
    return fmean(values) if values else None


def _within_policy(
    distances: Sequence[Sequence[float]], policies: Sequence[str], name: str
) -> list[list[float]]:
    mine = [policy == name for policy in policies]
    return [list(compress(row, mine)) for row in compress(distances, mine)]


def _policy_separation(
    distances: Sequence[Sequence[float]], policies: Sequence[str]
) -> float | None:
    count = min(UMAP["n_neighbors"], len(policies) - 1)
    if count < 1 or len(set(policies)) < 2:
        return None
    shares, chances = [], []
    for i, row in enumerate(distances):
        order = sorted((j for j in range(len(row)) if j != i), key=lambda j: (row[j], j))
        shares.append(fmean(policies[j] == policies[i] for j in order[:count]))
        chances.append((policies.count(policies[i]) - 1) / (len(policies) - 1))
    return fmean(shares) - fmean(chances)


def _far_out(nearest: Sequence[float]) -> float | None:
    if len(nearest) < 4:
        return None
    low, _, high = quantiles(nearest, n=4, method="inclusive")
    return fmean(value > high + WHISKER * (high - low) for value in nearest)
