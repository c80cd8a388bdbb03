"""Can surface features tell the gold? A logistic regression, 5-fold by group, tries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

Question = Mapping[str, Any]
Features = Callable[[Sequence[str]], np.ndarray]


def surface(options: Sequence[str]) -> np.ndarray:
    """Sizes (as they are, beside the others' mean, by rank) and position of every option."""
    counts = np.array(
        [
            [len(o), len(re.findall(r"\w+|[^\w\s]+", o)), len(o.split()), len(re.findall(r"\d", o))]
            for o in options
        ],
        dtype=float,
    )
    below = (counts[None, :, :] < counts[:, None, :]).sum(axis=1)
    columns = (
        counts,
        counts - counts.mean(axis=0),
        below,
        counts == counts.min(axis=0),
        counts == counts.max(axis=0),
        np.eye(len(options)),
    )
    return np.hstack([np.asarray(column, dtype=float) for column in columns])


def likeness(options: Sequence[str]) -> np.ndarray:
    """How much an option resembles the others: mean, most and least shared tokens."""
    tokens = [set(re.findall(r"\w+|[^\w\s]", option)) for option in options]
    shared = np.array([[len(a & b) / len(a | b) for b in tokens] for a in tokens])
    others = shared[~np.eye(len(options), dtype=bool)].reshape(len(options), -1)
    return np.column_stack([others.mean(axis=1), others.max(axis=1), others.min(axis=1)])


def told(questions: Sequence[Question], features: Features) -> tuple[float, float, float]:
    """Return how often the regression picks the gold, with its 95% Wilson interval."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    size = len(questions[0]["choices"])
    x = np.vstack([features(question["choices"]) for question in questions])
    y = np.array([i == question["answer"] for question in questions for i in range(size)])
    groups = np.repeat([question["group"] for question in questions], size)
    hits = 0
    for train, test in GroupKFold(5).split(x, y, groups):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        chances = model.fit(x[train], y[train]).predict_proba(x[test])[:, 1]
        gold = y[test].reshape(-1, size).argmax(axis=1)
        hits += int((chances.reshape(-1, size).argmax(axis=1) == gold).sum())
    return (hits / len(questions), *wilson(hits, len(questions)))


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson interval of a share."""
    share = hits / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * np.sqrt(share * (1 - share) / total + z * z / (4 * total**2)) / (1 + z * z / total)
    return float(middle - half), float(middle + half)
