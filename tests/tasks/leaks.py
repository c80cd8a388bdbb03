"""Can what shows in a question's form tell the gold? Adversaries that learn from other questions.

Folds hold whole clusters (a database, a problem), so that nothing about one is learnt from itself.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

Question = Mapping[str, Any]
Features = Callable[[Question], np.ndarray]
"""(options, features) of one question."""

ALL = bool(os.environ.get("CONVBENCH_SLOW"))
"""Whether the heavier adversaries try, too, and on more questions."""
MODELS = ("logistic", "tree") if ALL else ("logistic",)
_BUCKETS = 512
WORDS = (
    "SELECT DISTINCT FROM JOIN LEFT ON WHERE AND OR NOT IN LIKE BETWEEN GROUP BY HAVING ORDER ASC",
    "DESC LIMIT UNION INTERSECT EXCEPT COUNT SUM AVG MIN MAX AS T1 T2 T3",
)
_WORDS = sum(len(line.split()) for line in WORDS)
KINDS = (*(word for line in WORDS for word in line.split()), *"=<>,.()*", "<>", ">=", "<=")


def surface(question: Question) -> np.ndarray:
    """Sizes of every option (characters, tokens, words, digits) and its position."""
    options = question["choices"]
    counts = [[len(o), len(_tokens(o)), len(o.split()), len(re.findall(r"\d", o))] for o in options]
    return np.hstack([beside(np.array(counts, float)), np.eye(len(options))])


def likeness(question: Question) -> np.ndarray:
    """How much an option resembles the others: mean, most and least shared tokens."""
    sets = [set(_tokens(option)) for option in question["choices"]]
    shared = np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])
    others = shared[~np.eye(len(sets), dtype=bool)].reshape(len(sets), -1)
    return beside(np.column_stack([others.mean(1), others.max(1), others.min(1)]))


def words(question: Question, salt: str = "") -> np.ndarray:
    """How often each word and pair of words comes in every option, beside the mean of all; in
    buckets by a hash, so that no list of words is learnt from the questions that are held out.

    What shares a bucket is by chance, and so is some of what is found: on the same CoSQL questions
    0.22 to 0.31 by one `salt` or another.
    """
    rows = np.zeros((len(question["choices"]), _BUCKETS))
    for row, option in zip(rows, question["choices"], strict=True):
        found = _tokens(option)
        for said in (*found, *map(" ".join, pairwise(found))):
            row[zlib.crc32((salt + said).encode()) % _BUCKETS] += 1
    away: np.ndarray = rows - rows.mean(axis=0)
    return away


def keywords(question: Question) -> np.ndarray:
    """How often each SQL keyword, aggregate, operator and mark comes in every option."""
    found = [Counter(_tokens(option)) for option in question["choices"]]
    return beside(np.array([[one[kind] for kind in KINDS] for one in found], float))


def shared(question: Question) -> np.ndarray:
    """How much of the question every option says: words, pieces of words, numbers."""
    text = str(question.get("utterance") or question["question"])
    asked, pieces, digits = set(_words(text)), _pieces(text), set(re.findall(r"\d+", text))
    rows = []
    for option in question["choices"]:
        words, own = _words(option), re.findall(r"(?<!\w)\d+", option)
        said, parts = sum(word in asked for word in words), _pieces(option)
        rows.append(
            [
                len(asked & set(words)), said, said / max(1, len(words)),
                len(asked & set(words)) / len(asked | set(words)),
                len(pieces & parts) / max(1, len(parts)), len(pieces & parts),
                sum(n in digits for n in own), sum(n not in digits for n in own),
            ]
        )  # fmt: skip
    return beside(np.array(rows, float))


def beside(values: np.ndarray) -> np.ndarray:
    """Values as they are, beside the options' mean, by rank, and whether least or most."""
    below = (values[None, :, :] < values[:, None, :]).sum(axis=1)
    ends = (values == values.min(axis=0), values == values.max(axis=0))
    parts = (values, values - values.mean(axis=0), below, *ends)
    return np.hstack([np.asarray(part, dtype=float) for part in parts])


def told(
    questions: Sequence[Question],
    *features: Features,
    cluster: str = "group",
    model: str = "logistic",
    train: Callable[[str], bool] | None = None,
    turns: bool = False,
    tried: int = 1,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return how often a model picks the gold of clusters that it did not learn from, with the
    95% interval clustered by them; five folds, or (`train`) learnt from these clusters alone.

    The interval is as wide as one of 95% over all adversaries `tried` (Bonferroni). Where it
    `turns`, it takes the least likely option if that is oftener right in folds of the clusters that
    it learns from.
    """
    names = np.array([str(question[cluster]) for question in questions])
    cases = [np.hstack([feature(question) for feature in features]) for question in questions]
    hits = np.full(len(questions), np.nan)
    for fold in _folds(names, train, seed):
        held = np.flatnonzero(fold)
        if not len(held):
            continue
        learnt = [i for i in range(len(questions)) if not fold[i]]
        known = [questions[i] for i in learnt]
        scores = _scores(model, [cases[i] for i in learnt], known, seed)
        sign = 1
        if turns:
            inner = told(known, *features, cluster=cluster, model=model, seed=seed + 1)
            sign = 1 if inner[0] >= 1 / len(cases[0]) else -1
        for i in held:
            hits[i] = (sign * scores(cases[i])).argmax() == questions[i]["answer"]
    there = ~np.isnan(hits)
    return clustered(hits[there], names[there], tried)


def best_known(
    questions: Sequence[Question], sign: int, cluster: str = "database"
) -> tuple[float, float, float]:
    """Return how often the right query is that whose build (its text without names, values and
    tables) the most right queries on other databases have (`sign` 1), or the fewest (-1)."""
    names = np.array([str(question["database"]) for question in questions])
    builds = [[_build(option) for option in question["choices"]] for question in questions]
    hits = []
    for question, name, own in zip(questions, names, builds, strict=True):
        others = Counter(
            build[other["answer"]]
            for other, build, there in zip(questions, builds, names, strict=True)
            if there != name
        )
        counts = sign * np.array([others[build] for build in own])
        best = np.flatnonzero(counts == counts.max())
        hits.append((question["answer"] in best) / len(best))
    return clustered(np.array(hits), np.array([str(question[cluster]) for question in questions]))


def _build(option: str) -> str:
    """A query's keywords and marks, with one mark for any name and one for any value."""
    bare = re.sub(r"\bFROM (?:(?! WHERE| GROUP| ORDER).)*", "", option)
    kept = "|".join(KINDS[:_WORDS])
    name = rf"(?:\bT\d\.)?\b(?!(?:{kept})\b)[A-Za-z_]\w*"
    return re.sub(name, "x", re.sub(r"'[^']*'|\b\d+\b", "0", bare))


def clustered(hits: np.ndarray, names: np.ndarray, tried: int = 1) -> tuple[float, float, float]:
    """Return a share with its 95% interval over clusters (t, linearised ratio), widened for as many
    as are `tried`."""
    scipy = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    mean = float(hits.mean())
    sums = np.array([(hits[names == name] - mean).sum() for name in np.unique(names)])
    count = len(sums)
    error = np.sqrt(count / (count - 1) * (sums**2).sum()) / len(hits)
    half = float(scipy.t.ppf(1 - 0.025 / tried, count - 1) * error)
    return mean, mean - half, mean + half


def _folds(names: np.ndarray, train: Callable[[str], bool] | None, seed: int) -> list[np.ndarray]:
    if train is not None:
        return [np.array([not train(name) for name in names])]
    order = np.random.default_rng(seed).permutation(np.unique(names))
    place = {name: i % 5 for i, name in enumerate(order)}
    return [np.array([place[name] == fold for name in names]) for fold in range(5)]


def _scores(
    model: str, cases: Sequence[np.ndarray], questions: Sequence[Question], seed: int
) -> Callable[[np.ndarray], np.ndarray]:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.vstack(cases)
    y = np.concatenate(
        [np.arange(len(c)) == q["answer"] for c, q in zip(cases, questions, strict=True)]
    )
    if model == "tree":
        fitted: Any = RandomForestClassifier(40, min_samples_leaf=8, random_state=seed).fit(x, y)
    else:
        fitted = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)).fit(x, y)
    noise = np.random.default_rng(seed)  # no option is taken for being the first of equals
    return lambda case: fitted.predict_proba(case)[:, 1] + 1e-9 * noise.random(len(case))


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|<>|<=|>=|[^\w\s]", text)


def _words(text: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    return [word.rstrip("s") or word for word in re.findall(r"[^\W\d]+|\d+", apart.lower())]


def _pieces(text: str) -> set[str]:
    plain = " ".join(re.findall(r"\w+", text.lower()))
    return {a + b + c for (a, b), (_, c) in pairwise(pairwise(plain))}


def numeric(question: Question) -> np.ndarray:
    """Features of the options as numbers: rank, magnitude, roundness."""
    values = np.array([float(option.replace(",", "")) for option in question["choices"]])
    ranks = np.eye(len(values))[values.argsort().argsort()]
    sizes = np.log1p(values)
    zeros = [len(option) - len(option.rstrip("0")) for option in question["choices"]]
    ends = [values % 10 == 0, values % 5 == 0, values % 2 == 0, zeros]
    extra = np.column_stack([ranks, sizes, sizes - sizes.mean(), *ends])
    return extra.astype(float)


def attempted(question: Question) -> np.ndarray:
    """How every option stands to the problem's and the attempt's numbers and to the student's."""
    values = [float(option.replace(",", "")) for option in question["choices"]]
    texts = [_numbers(question["question"]), _numbers(question["student_attempt"])]
    said, known = texts[1][-1], sorted({*texts[0], *texts[1]})
    rows = []
    for value in values:
        others = [other for other in values if other not in (value, said)]
        reached = [_reached(value, a, b) for a in known for b in known]
        ratio = np.log((1 + value) / (1 + said))
        rows.append(
            [
                value == said, texts[0].count(value), texts[1].count(value), sum(reached),
                any(reached), any(_reached(value, said, b) for b in known),
                abs(value - said) in known, ratio, abs(ratio), abs(value - said),
                sum(value % n == 0 for n in known if n > 1),
                min((abs(np.log((1 + value) / (1 + other))) for other in others), default=0),
                sum(abs(value - other) in known for other in others),
            ]
        )  # fmt: skip
    return beside(np.array(rows, float))


def shown_wrong(question: Question) -> np.ndarray:
    """Whether an option is the student's number."""
    said = _numbers(question["student_attempt"])[-1]
    return np.array([[float(option.replace(",", "")) == said] for option in question["choices"]])


def digits(question: Question) -> np.ndarray:
    """What the digits of every option show: the first and last, repeats, what divides it, whether
    it is a prime or a square; and how near the others are."""
    rows = []
    sizes = [np.log1p(float(option.replace(",", ""))) for option in question["choices"]]
    for option, size in zip(question["choices"], sizes, strict=True):
        text = re.sub(r"\D", "", option)
        number, far = int(text), sorted(abs(size - other) for other in sizes)
        divides = [number % n == 0 for n in range(2, 26)]
        rows.append(
            [
                int(text[0]), int(text[-1]), len(set(text)), text.count("0"), text == text[::-1],
                *divides, not any(number % n == 0 for n in range(2, min(number, 1000))),
                round(number**0.5) ** 2 == number, far[1], sum(far),
            ]
        )  # fmt: skip
    return beside(np.array(rows, float))


def _numbers(text: str) -> list[float]:
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def _reached(value: float, a: float, b: float) -> bool:
    return value in (a + b, abs(a - b), a * b) or bool(b and a / b == value)
