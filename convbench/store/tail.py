"""Tell whether a run has grown: size and time of its files, and how far they can be read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from convbench.store.parts import files
from convbench.store.places import Places
from convbench.store.run import Run

GROWING = ("conversations", "verdicts", "comparisons", "advantages")
"""Names of the files that are only appended to."""
LOOKED_AT = 4096
"""Bytes before an offset whose hash shows whether the file is still the one that was read."""

Signs = tuple[tuple[str, int, int], ...]
"""(path within the run, bytes, modification time in ns) of every file that grows."""


def signs(run: Run) -> Signs:
    """Return path, size and time of the files that grow, without reading them."""
    found = []
    for file in _files(run):
        for path in files(file):
            at = path.stat()
            found.append((str(path.relative_to(run.path)), at.st_size, at.st_mtime_ns))
    return tuple(found)


def changed(run: Run) -> float:
    """Return when a run's files were last written, in seconds since the epoch."""
    made = (run.path / "run.json").stat().st_mtime_ns
    return max([made, *(at for _, _, at in signs(run))]) / 1e9


def _files(run: Run) -> list[Path]:
    return [path for name in GROWING for path in run.files(f"{name}.jsonl")]


def marks(run: Run) -> dict[Path, tuple[int, str]]:
    """Return by file, those of shards included, the offset of the end of its last complete line and
    a hash of the bytes before it."""
    found = {}
    for path in _files(run):
        places = Places(path)
        if end := places.end():
            start = max(0, end - LOOKED_AT)
            found[path] = end, hashlib.sha256(places.read(start, end - start)).hexdigest()
    return found
