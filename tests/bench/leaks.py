"""How often models that learn from other databases find CoSQL's right queries by what shows.

Right queries are the same in every draw, so that the mean over seeds has a spread of its own that
more seeds do not take away: that of one set whose right options are drawn by lot says how wide.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from convbench.tasks.cosql import questions
from tests.bench.bench import Row
from tests.tasks.leaks import Features, Question, keywords, likeness, shared, surface, told, words

SEEDS = range(22, 22 + int(os.environ.get("CONVBENCH_SEEDS", "4")))
HASHES = tuple(partial(words, salt=f"{n}:") for n in range(12))
"""All at once, since by one of them alone it is a lottery what is found."""
COUNTED = (surface, keywords, likeness, shared)
FAMILIES: tuple[tuple[str, str, tuple[Features, ...]], ...] = (
    ("keywords and sizes", "logistic", (surface, keywords)),
    ("these and likeness", "logistic", COUNTED),
    ("these and likeness", "tree", COUNTED),
    ("words and pairs of words", "logistic", HASHES),
    ("words and pairs of words", "tree", HASHES),
)
CHANCE = 0.25
LOTS = 40
"""Times that the right option is drawn by lot, to see what chance alone would give."""


def leaks(folder: Path) -> Iterator[Row]:
    """Yield the distance from chance of each adversary's mean, over seeds, in spreads of what it
    finds where the right option is drawn by lot, and how often its intervals hold chance beside
    how often they do by lot; `CONVBENCH_COSQL` names the rows' parquet file; without it
    nothing is measured."""
    import pyarrow.parquet as pq

    path = os.environ.get("CONVBENCH_COSQL")
    if path is None:
        print("leaks: name CoSQL's rows: CONVBENCH_COSQL=FILE.parquet", file=sys.stderr)
        return
    rows = pq.read_table(path).to_pylist()
    made = [[m for m in questions(rows, seed=s) if "reject" not in m] for s in SEEDS]
    for what, model, features in FAMILIES:
        find = partial(told, cluster="database", model=model)
        found = [find(one, *features, seed=s) for s, one in zip(SEEDS, made, strict=True)]
        lots = [find(_by_lot(made[n % len(made)], n), *features, seed=n) for n in range(LOTS)]
        mean, spread = np.mean([one[0] for one in found]), np.std([one[0] for one in lots])
        said = f"CoSQL's right query told by {what} ({model})"
        off = f"{said}: {mean:.3f} (by lot {CHANCE} +- {spread:.3f}), off chance in spreads by lot"
        yield Row(off, float(abs(mean - CHANCE) / spread), "", 2.0)
        held, luck = _held(found), _held(lots)
        short = f"{said}: {held:.0%} of intervals hold chance (by lot {luck:.0%}), short by"
        yield Row(short, luck - held, "", 0.1)
    counts = [len(one) for one in made]
    yield Row("CoSQL's questions", float(np.mean(counts)), "", 165, at_least=True)


def _by_lot(made: Sequence[Question], seed: int) -> list[Question]:
    """Questions of which any option may be the right one."""
    rng = np.random.default_rng(seed)
    return [{**one, "answer": int(rng.integers(len(one["choices"])))} for one in made]


def _held(found: Sequence[tuple[float, float, float]]) -> float:
    return float(np.mean([low <= CHANCE <= high for _, low, high in found]))
