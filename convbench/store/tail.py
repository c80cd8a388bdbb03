"""How a run's files look from outside, and how far they are written: whether it grew."""

from __future__ import annotations

import hashlib
from pathlib import Path

from convbench.store.parts import files
from convbench.store.places import Places
from convbench.store.run import Run

GROWING = ("conversations", "verdicts", "comparisons", "advantages")
"""Files that are only appended to."""
LOOKED_AT = 4096
"""Bytes before a mark that tell whether the file is still the one that was read."""

Signs = tuple[tuple[str, int, int], ...]
"""Name within the run, bytes and time of change of every file that grows: a quick look."""


def signs(run: Run) -> Signs:
    """Return how the files look from outside."""
    found = []
    for file in _files(run):
        for path in files(file):
            at = path.stat()
            found.append((str(path.relative_to(run.path)), at.st_size, at.st_mtime_ns))
    return tuple(found)


def changed(run: Run) -> float:
    """Return when a run's files were written last, as seconds of the clock."""
    made = (run.path / "run.json").stat().st_mtime_ns
    return max([made, *(at for _, _, at in signs(run))]) / 1e9


def _files(run: Run) -> list[Path]:
    return [path for name in GROWING for path in run.files(f"{name}.jsonl")]


def marks(run: Run) -> dict[Path, tuple[int, str]]:
    """Return how far each file can be read now, those of shards among them: the place behind its
    last whole line, and a hash of what stands before that."""
    found = {}
    for path in _files(run):
        places = Places(path)
        if end := places.end():
            start = max(0, end - LOOKED_AT)
            found[path] = end, hashlib.sha256(places.read(start, end - start)).hexdigest()
    return found
