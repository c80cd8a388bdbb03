"""The first conversations of large runs, to be shown while all of them are read."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from convbench.store import Run
from convbench.store.jsonl import placed
from convbench.store.places import Places
from convbench.store.tail import Mark, tail
from convbench.view.index import Index, build_index, distinct

SHOWN = 200
"""Conversations of each run, and as many verdicts of each judge."""


def first(runs: Sequence[Run]) -> Index:
    """Return an index of the first records of these runs, in memory."""
    unique = distinct(runs)
    with tempfile.TemporaryDirectory() as folder:
        heads = [tail(run, {}, _heads(run), Path(folder) / str(k)) for k, run in enumerate(unique)]
        index = build_index([run for run, _ in heads])
    homes = {run.path: piece.path for run, pieces in heads for piece in pieces}
    index.files[:] = [Places(homes[file.path.parent]) for file in index.files]
    index.runs[:] = unique
    return index


def _heads(run: Run) -> dict[Path, Mark]:
    """Return how far a run's first files are read: a place in them is one in the run's own."""
    judges = len(list((run.path / "judges").glob("*.json"))) or 1
    found = {}
    for name, most in (("conversations", SHOWN), ("verdicts", SHOWN * judges)):
        for path in run.files(f"{name}.jsonl")[:1]:
            ends = (start + len(line) for _, start, line in islice(placed(path), most))
            end = max(ends, default=0)
            if end:
                found[path] = Mark(end, "")
    return found
