"""Tell whether a run has grown: size and time of its files, and how far they can be read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from convbench.store.byte_offsets import end_of_lines, read_range
from convbench.store.run import Run

GROWING = ("conversations", "verdicts", "comparisons", "advantages")
"""Names of the files that are only appended to."""
LOOKED_AT = 4096
"""Bytes before an offset whose hash shows whether the file is still the one that was read."""

FileStates = tuple[tuple[str, int, int], ...]
"""(path within the run, bytes, modification time in ns) of every file that grows."""


def file_states(run: Run) -> FileStates:
    """Return (path within the run, bytes, modification time in ns) of the files that grow.

    Missing ones are left out; nothing is read.
    """
    states = []
    for path in _growing_files(run):
        at = path.stat()
        states.append((path.name, at.st_size, at.st_mtime_ns))
    return tuple(states)


def last_changed(run: Run) -> float:
    """Return when `run.json` or a file that grows was last written, in seconds since the epoch."""
    created_ns = (run.path / "run.json").stat().st_mtime_ns
    return max([created_ns, *(at for _, _, at in file_states(run))]) / 1e9


def _growing_files(run: Run) -> list[Path]:
    files = (run.path / f"{name}.jsonl" for name in GROWING)
    return [path for path in files if path.exists()]


def read_ends(run: Run) -> dict[Path, tuple[int, str]]:
    """Return, by path, the offset of the end of its last complete line and a hash of the bytes
    before it.

    The hash is the hex SHA-256 of up to 4,096 bytes. A file that is missing or has no complete line
    is left out.
    """
    ends = {}
    for path in _growing_files(run):
        if end := end_of_lines(path):
            start = max(0, end - LOOKED_AT)
            ends[path] = end, hashlib.sha256(read_range(path, start, end - start)).hexdigest()
    return ends
