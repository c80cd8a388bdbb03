"""Cache of questions that take long to generate, on this machine, by what they are made from.

A file holds plain data (JSON, a line each) and is named after a hash of the code, the rows and the
seed. It is read only if it belongs to this user, has a plausible size and is unchanged since it was
written; else the questions are generated again.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from convbench.errors import RunError
from convbench.store.jsonl import write_atomic
from convbench.util.cache import cache_folder

MOST_BYTES = 64 << 20
"""Most bytes of a file that is read."""
MOST_FILES = 32
"""Most files in the cache; the oldest are deleted."""
Row = Mapping[str, Any]


def cached_questions(
    name: str,
    modules: Sequence[ModuleType],
    packages: Sequence[str],
    rows: Sequence[Row],
    seed: int,
    make: Callable[[], Iterable[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the questions that `make` generates from rows and a seed, from the cache if it has
    them; new ones are written to it.

    They are generated again with another version of Python, of `modules` (compared by their code)
    or of the distributions `packages`. Rows that JSON cannot hold are not cached. A failure of the
    cache is ignored.
    """
    try:
        mark = _cache_key(modules, packages, rows, seed)
    except TypeError:  # rows that JSON cannot hold
        return list(make())
    file = cache_folder("questions") / f"{name}-{mark}.jsonl"
    questions = _read_cache(file, mark)
    if questions is None:
        questions = list(make())
        _write_cache(file, mark, questions)
    return questions


def _cache_key(
    modules: Sequence[ModuleType], packages: Sequence[str], rows: Iterable[Row], seed: int
) -> str:
    """Return a hash of everything that the questions depend on. Raises TypeError for rows that are
    not plain data."""
    digest = hashlib.sha256(f"{seed} {platform.python_version()}".encode())
    for package in packages:
        digest.update(f"{package} {version(package)}\n".encode())
    for module in modules:
        source = Path(module.__file__ or "")
        files = sorted(source.parent.glob("*.py")) if source.name == "__init__.py" else [source]
        for file in files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    for row in rows:
        digest.update(orjson.dumps(row, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY))
        digest.update(b"\n")
    return digest.hexdigest()[:32]


def _read_cache(file: Path, mark: str) -> list[dict[str, Any]] | None:
    """Return a file's questions, or None if it is missing, not this user's, or changed."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as opened:
            known = os.fstat(descriptor)
            if not stat.S_ISREG(known.st_mode) or known.st_uid != os.geteuid():
                return None
            if known.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or known.st_size > MOST_BYTES:
                return None
            head, _, body = opened.read(MOST_BYTES + 1).partition(b"\n")
        header = orjson.loads(head)
        if header != {"made_of": mark, "sha256": hashlib.sha256(body).hexdigest()}:
            return None
        rows = [orjson.loads(line) for line in body.splitlines()]
    except (OSError, ValueError, RecursionError):
        return None
    return rows if all(isinstance(row, dict) for row in rows) else None


def _write_cache(file: Path, mark: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the questions to the cache, atomically. A failure is ignored: they are generated
    again."""
    try:
        body = b"".join(orjson.dumps(entry) + b"\n" for entry in rows)
        if (
            rows != [orjson.loads(line) for line in body.splitlines()]
            or len(body) > MOST_BYTES // 2
        ):
            return  # would not be read back equal
        head = orjson.dumps({"made_of": mark, "sha256": hashlib.sha256(body).hexdigest()})
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(file, head + b"\n" + body)
        file.chmod(0o600)
        others = sorted(file.parent.glob("*.jsonl"), key=lambda entry: entry.stat().st_mtime)
        for old in others[:-MOST_FILES]:
            old.unlink(missing_ok=True)
    except (OSError, TypeError, RunError):
        return
