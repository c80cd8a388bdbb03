"""How policies talk: patterns of their final replies, after Mukherjee et al. 2025, appendix E.1.

Words are common if policies use them alike, or if anybody talks so about questions; K-means over
them finds five patterns, and UMAP over the other words places replies in a plane.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from convbench.errors import DataError, MissingDependency
from convbench.reports.document import Column, Part, Picture, Row, Table
from convbench.reports.frame import Setting
from convbench.reports.plots import drawing, looks, panels, picture
from convbench.reports.policies import BASE
from convbench.stats.estimates import estimate
from convbench.util.install import with_extra
from convbench.views import final_text

if TYPE_CHECKING:
    from pandas import DataFrame

WORD = re.compile(r"(?u)\b\w\w+\b")
"""A word: two or more letters or digits, as in scikit-learn's vectorizers."""
PATTERNS = 5
SEED = 42
NEAREST, FEWEST = 10, 4
FREQUENCY, RATIO = 0.01, 1.2
"""A common word is in at least this share of some policy's replies, and at most this many times as
frequent in one policy as in another."""
TALK = frozenset(
    "answer answers question questions correct incorrect option options choice choices final "  # noqa: SIM905
    "thinking".split()
)
"""Words of any talk about questions."""
TFIDF: dict[str, Any] = {"max_features": 5000, "min_df": 2, "max_df": 0.9, "sublinear_tf": True}
SHAPES = ("o", "s", "^", "D", "P")
"""Markers of the patterns, the largest first: circle, square and triangle as in the paper."""


def patterns_part(settings: Sequence[Setting], *, plots: bool) -> Part:
    """Return the part on language patterns, with `plots` also a picture a setting.

    Raise DataError if a setting's replies share no usable word, MissingDependency without the extra
    `analysis`.
    """
    found = {setting.title: analyse(final_replies(setting), plane=plots) for setting in settings}
    tables = (_table({title: rows for title, (rows, _) in found.items()}), _common_table(found))
    shown = (_draw(title, rows) for title, (rows, _) in found.items() if "x" in rows)
    return Part("Language patterns", (), tables, tuple(shown))


def final_replies(setting: Setting) -> DataFrame:
    """Return policy, conversation_id, group and words in lower case of each final reply."""
    import pandas as pd

    rows = []
    for policy in setting.policies:
        own = setting.rows_of(policy)
        groups = dict(zip(own["conversation_id"], own["group"], strict=True))
        for run in policy.runs:
            for talk in run.conversations():
                name = talk.conversation_id
                text = final_text(run.manifest.protocol, talk) if name in groups else None
                if talk.failure is None and text is not None:
                    rows.append((policy.name, name, groups[name], WORD.findall(text.lower())))
    return pd.DataFrame(rows, columns=["policy", "conversation_id", "group", "words"])


def analyse(replies: DataFrame, *, plane: bool) -> tuple[DataFrame, frozenset[str]]:
    """Return the replies with what was found of each, and the common words; the same replies give
    the same result.

    `pattern` is 0 for the largest pattern. Where uncommon words allow it there are `distance`, the
    mean cosine distance to the ten nearest replies, `outlier` (100 beyond three median distances,
    else 0), `silhouette` among the policies, and with `plane` (which takes longest) `x` and `y`,
    the place in the plane.
    """
    common = common_words(replies)
    apart = tfidf([" ".join(w for w in words if w not in common) for words in replies["words"]])
    inside = [" ".join(w for w in words if w in common) for words in replies["words"]]
    found = replies.assign(pattern=clusters(inside))
    if apart is not None and len(found) >= FEWEST:
        from sklearn.metrics import silhouette_samples
        from sklearn.neighbors import NearestNeighbors

        tree = NearestNeighbors(n_neighbors=min(NEAREST, len(found) - 1), metric="cosine")
        found["distance"] = tree.fit(apart).kneighbors()[0].mean(axis=1)
        found["outlier"] = 100.0 * (found["distance"] > 3 * found["distance"].median())
        if 1 < found["policy"].nunique() < len(found):
            found["silhouette"] = silhouette_samples(apart, found["policy"], metric="cosine")
        if plane:
            near, umap = min(15, len(found) - 1), _library("umap", "umap-learn")
            places = umap.UMAP(n_neighbors=near, random_state=SEED, n_jobs=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # on small graphs it warns of a random start
                found[["x", "y"]] = places.fit_transform(apart)
    return found, common


def _library(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingDependency(
            package, needed_for="--patterns", install=with_extra("analysis")
        ) from None


def common_words(replies: DataFrame) -> frozenset[str]:
    """Return the common words of policies' replies: stop words, words of any talk about questions,
    and those that all policies use, in at least 1% of some policy's replies and at most 1.2 times
    as often in one as in another."""
    stop_words = _library("sklearn.feature_extraction.text", "scikit-learn").ENGLISH_STOP_WORDS
    used = replies["words"].map(set).explode().to_frame("word").join(replies["policy"])
    counts = used.groupby(["word", "policy"]).size().unstack(fill_value=0)
    shares = counts / replies.groupby("policy").size()
    most, least = shares.max(axis=1), shares.min(axis=1)
    alike = (least > 0) & (most <= RATIO * least + 1e-9) & (most >= FREQUENCY)
    always = (TALK | stop_words) & set(shares.index)
    return frozenset(always | set(shares.index[alike]))


def distinct_n(texts: Sequence[Sequence[str]], n: int) -> float | None:
    """Return different n-grams over all, none across two texts (Li et al. 2016); None without."""
    grams = [tuple(words[i : i + n]) for words in texts for i in range(len(words) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def tfidf(texts: Sequence[str]) -> Any:
    """Return the TF-IDF matrix of words in 2 or more, at most 90% of the texts; None without."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer(**TFIDF).fit_transform(texts)
    except ValueError:  # limits that exclude every word
        return None


def clusters(texts: Sequence[str]) -> list[int]:
    """Return the pattern of each text by K-means over TF-IDF, 0 for the largest."""
    from sklearn.cluster import KMeans

    matrix = tfidf(texts)
    if matrix is None:
        raise DataError(
            "patterns: found no common word in at least 2 and at most 90% of the "
            f"{len(texts)} replies; compare more or longer ones"
        )
    means = KMeans(min(PATTERNS, len({*texts})), random_state=SEED, n_init=10)
    labels = means.fit_predict(matrix).tolist()
    order = sorted(set(labels), key=lambda label: (-labels.count(label), labels.index(label)))
    return [order.index(label) for label in labels]


def _table(found: Mapping[str, DataFrame]) -> Table:
    patterns = range(max(int(rows["pattern"].max()) for rows in found.values()) + 1)
    columns = (
        Column("setting", "Setting", text=True),
        Column("policy", "Policy", text=True),
        Column("replies", "replies"),
        *(Column(f"pattern_{k}", f"pattern {k} (%)", f"pat. {k}", 1) for k in patterns),
        Column("words", "words", digits=1),
        Column("vocabulary", "vocabulary", "vocab."),
        Column("distinct_1", "distinct-1", "dist-1", 3),
        Column("distinct_2", "distinct-2", "dist-2", 3),
        Column("density", "density", digits=3),
        Column("separation", "separation", "separ.", 3),
        Column("outliers", "outliers (%)", "outl. %", 1),
    )
    rows = []
    for title, replies in found.items():
        for name, own in replies.groupby("policy", sort=False):
            texts = list(own["words"])
            shares = (estimate(own["group"], 100.0 * (own["pattern"] == k)) for k in patterns)
            words = estimate(own["group"], own["words"].map(len))
            distinct = (distinct_n(texts, 1), distinct_n(texts, 2))
            far = (
                float(own[column].mean()) if column in own else None
                for column in ("distance", "silhouette", "outlier")
            )
            vocabulary = len({word for each in texts for word in each})
            rows.append(
                Row((title, str(name), len(own), *shares, words, vocabulary, *distinct, *far))
            )
    notes = (
        "Patterns: K-means over common words, the largest first; share of replies ± clustered "
        "error. Density: mean cosine distance to the ten nearest replies by uncommon words. "
        "Separation: silhouette among the policies. Outliers: beyond three median distances. "
        "Distinct-n and vocabulary change with the amount of text.",
    )
    return Table("patterns", "Patterns", columns, tuple(rows), notes)


def _common_table(found: Mapping[str, tuple[DataFrame, frozenset[str]]]) -> Table:
    rows = []
    for title, (replies, common) in found.items():
        used = replies["words"].explode()
        most = used[used.isin(common)].value_counts().head(20)
        rows.append(Row((title, ", ".join(most.index), len(common))))
    columns = (
        Column("setting", "Setting", text=True),
        Column("words", "most frequent common words", text=True),
        Column("common", "common"),
    )
    return Table("common-words", "Common words", columns, tuple(rows))


def _draw(title: str, replies: DataFrame) -> Picture:
    names = sorted(replies["policy"].unique(), key=lambda name: name.partition(" (")[0] != BASE)
    colors = {name: color for name, (color, _) in looks(names).items()}
    with drawing():
        figure, (axes,) = panels(1, 4.6)
        # In the order of their ids, so that no policy is drawn over another.
        for pattern, own in replies.sort_values("conversation_id").groupby("pattern"):
            style: dict[str, Any] = {"marker": SHAPES[pattern], "s": 20}
            shown = own["policy"].map(colors)
            axes.scatter(own["x"], own["y"], c=shown, alpha=0.65, linewidths=0, **style)
            axes.scatter([], [], c="none", ec="black", label=f"pattern {pattern}", **style)
        for name, color in colors.items():
            axes.scatter([], [], color=color, label=name)
        figure.legend(loc="outside lower center", ncols=5)
        axes.set_xlabel("UMAP 1")
        axes.set_ylabel("UMAP 2")
        caption = f"{title}: final replies by their uncommon words; shapes are patterns."
        return picture(figure, f"patterns {title}", caption)
