"""Locks that a killed build left where DeepSpeed's C++ parts are compiled.

torch compiles them once, under a file named `lock` that it holds open and waits for without a word
or an end. A training that was killed meanwhile leaves the file, and every later one would wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

OLD_S = 900.0
"""Seconds after which no build goes on, on another machine that shares the folder neither."""


def free(note: Callable[[str], None], env: Mapping[str, str] = os.environ) -> None:
    """Remove old locks that no process here holds; tell of newer ones, whose holder may be another
    machine."""
    for lock in _locks(env):
        try:
            found = lock.stat()
            if _held(found):
                continue
            if time.time() - found.st_mtime < OLD_S:
                note(
                    f"{lock}: no process here holds this lock; training waits for it to go. If no "
                    "other machine compiles there now, a training that was killed left it: "
                    "remove it"
                )
                continue
            lock.unlink()
        except OSError:  # it has just gone
            continue
        note(f"{lock}: removed; a training that was killed while it compiled left this lock")


def _locks(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the locks: below TORCH_EXTENSIONS_DIR, or a folder for each Python and device in the
    user's cache."""
    if named := env.get("TORCH_EXTENSIONS_DIR"):
        return Path(named).glob("*/lock")
    cache = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return (cache / "torch_extensions").glob("*/*/lock")


def _held(lock: os.stat_result) -> bool:
    """Whether a process that can be seen has this file open, or none can be seen."""
    seen = False
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        seen = True
        try:
            found = descriptor.stat()
        except OSError:  # another user's, or closed
            continue
        if (found.st_dev, found.st_ino) == (lock.st_dev, lock.st_ino):
            return True
    return not seen
