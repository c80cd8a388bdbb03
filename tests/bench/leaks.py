"""How often models that learn from other databases find CoSQL's right queries by what shows.

Right queries are the same in every draw, so that the mean over seeds has a spread of its own that
more seeds do not take away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from convbench.tasks.cosql import questions
from tests.bench.bench import Row
from tests.tasks.leaks import Features, keywords, likeness, shared, surface, told, words

SEEDS = range(22, 22 + int(os.environ.get("CONVBENCH_SEEDS", "4")))
SALTED = [(partial(words, salt=salt),) for salt in ("", "a:", "b:", "c:")]
COUNTED = (surface, keywords, likeness, shared)
FAMILIES: tuple[tuple[str, str, list[tuple[Features, ...]]], ...] = (
    ("keywords and sizes", "logistic", [(surface, keywords)]),
    ("these and likeness", "logistic", [COUNTED]),
    ("these and likeness", "tree", [COUNTED]),
    ("words and pairs of words", "logistic", SALTED),
    ("words and pairs of words", "tree", SALTED),
)
FAR = 0.035


def leaks(folder: Path) -> Iterator[Row]:
    """Yield the distance from chance of each adversary's mean, over seeds; `CONVBENCH_COSQL` names
    the rows' parquet file."""
    import pyarrow.parquet as pq

    rows = pq.read_table(os.environ["CONVBENCH_COSQL"]).to_pylist()
    made = [[m for m in questions(rows, seed=s) if "reject" not in m] for s in SEEDS]
    for what, model, several in FAMILIES:
        found = [
            told(one, *features, cluster="database", model=model, seed=seed)
            for seed, one in zip(SEEDS, made, strict=True)
            for features in several
        ]
        mean = np.mean([share for share, _, _ in found])
        held = sum(low <= 0.25 <= high for _, low, high in found)
        said = f"CoSQL's right query told by {what} ({model}), off chance"
        yield Row(f"{said}; {mean:.3f}, {held} of {len(found)} intervals hold it",
                  abs(mean - 0.25), "", FAR)  # fmt: skip
    counts = [len(one) for one in made]
    yield Row("CoSQL's questions", float(np.mean(counts)), "", 165, at_least=True)
