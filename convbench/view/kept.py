"""Indexes of large runs, kept on this machine so that the next start need not make them.

They lie in the user's own folder and never beside a run: a database that came with a run would be
believed. One viewer has a file at a time; a second one of the same runs makes its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import orjson

from convbench import answers, schema, store
from convbench.cache import cache_folder
from convbench.errors import ConvbenchError, RunError
from convbench.store import Run
from convbench.store.limits import ASKED
from convbench.store.places import Places, size_of
from convbench.store.tables import reopen
from convbench.store.tail import Mark, appended, fixed, marks
from convbench.view.index import Index, build_index, distinct

LARGE = 64 << 20
"""Bytes of conversations from which on an index is kept."""
MANY = 4
"""Files that are kept; the oldest go."""
WRONG, NOT_KEPT = 1, 3
"""Exit codes: the runs cannot be read; their index cannot be kept."""


def large(runs: Sequence[Run]) -> bool:
    """Whether reading these runs takes long enough for their index to be kept."""
    return sum(size_of(path) for run in runs for path in run.files("conversations.jsonl")) >= LARGE


def opened(runs: Sequence[Run]) -> Index | None:
    """Return the index of these runs that was kept, as it was when it was left; None where there
    is none, another viewer has it, or the runs are no longer what it was made of."""
    import duckdb

    unique = distinct(runs)
    for file in _files(unique):
        try:
            connection = reopen(file, unique, room=ASKED)
        except (duckdb.Error, RunError, OSError):
            continue  # in use, or broken off while it was made
        try:
            said = orjson.loads(connection.execute("SELECT said FROM raw.kept").fetchall()[0][0])
            index = Index(
                unique, connection, said["judges"],
                [Places(unique[number].path / name) for number, name in said["files"]],
                [{run.path / name: Mark(*mark) for name, mark in of.items()}
                 for run, of in zip(unique, said["marks"], strict=True)],
                [tuple(map(tuple, of)) for of in said["seen"]], file, ASKED,
            )  # fmt: skip
            same = said["fixed"] == [[list(one) for one in fixed(run)] for run in unique]
            grown = zip(index.marks, map(marks, unique), strict=True)
            if same and all(appended(*pair) for pair in grown):
                os.utime(file)
                return index
        except (duckdb.Error, LookupError, TypeError, ValueError, OSError):
            pass
        connection.close()
        _gone(file)
    return None


def make(runs: Sequence[Run], file: Path | None = None) -> None:
    """Build the index of these runs and keep it. Raises RunError for damaged runs, OSError or
    duckdb.Error where it cannot be kept."""
    unique = distinct(runs)
    file = file or _new(unique)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = _files(unique)
    try:
        build_index(unique, file=file).close()
        file.chmod(0o600)
    except BaseException:
        _gone(file)
        raise
    for old in before:
        _gone(old)
    for old in sorted(file.parent.glob("*.duckdb"), key=lambda one: one.stat().st_mtime)[:-MANY]:
        _gone(old)


class Maker:
    """Another process that makes an index, so that pages are answered meanwhile."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.since = time.monotonic()
        self._file = _new(runs)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        asked = [os.fsdecode(self._file), *(os.fsdecode(run.path.resolve()) for run in runs)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "convbench.view.kept"], stdin=subprocess.PIPE,
            stdout=self._said, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(orjson.dumps(asked))
            self._process.stdin.close()

    @property
    def running(self) -> bool:
        """Whether it is still at work."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise RunError for what is wrong with the runs. What went wrong otherwise says nothing
        of them: no room for the file, say, or a kill."""
        if self._process.returncode == WRONG:
            self._said.seek(0)
            raise RunError(self._said.read().decode(errors="replace").strip())

    def stop(self) -> None:
        """End it."""
        if self.running:
            self._process.kill()  # between two blocks of rows no signal is heard
            self._process.wait()
            _gone(self._file)
        self._said.close()


def _new(runs: Sequence[Run]) -> Path:
    return cache_folder("view") / f"{_name(distinct(runs))}-{secrets.token_hex(4)}.duckdb"


def _files(runs: Sequence[Run]) -> list[Path]:
    """Return the files of an index of these runs that are this user's own, the newest first."""
    with contextlib.suppress(OSError):
        found = cache_folder("view").glob(f"{_name(runs)}-*.duckdb")
        return sorted(filter(_own, found), key=lambda one: one.stat().st_mtime, reverse=True)
    return []


def _own(file: Path) -> bool:
    known = file.lstat()
    others = known.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(known.st_mode) and known.st_uid == os.geteuid() and not others


def _name(runs: Sequence[Run]) -> str:
    """Return a hash of where these runs lie and of the program that reads them."""
    found = hashlib.sha256(_program().encode())
    for run in runs:
        found.update(os.fsencode(run.path.resolve()) + b"\0")
    return found.hexdigest()[:32]


@cache
def _program() -> str:
    """Return a hash of what makes an index: another program would fill it otherwise."""
    found = hashlib.sha256(f"{sys.version_info[:2]} {version('duckdb')}".encode())
    rooms = (answers, schema, store)
    files = [path for room in rooms for path in Path(room.__file__ or "").parent.rglob("*.py")]
    for path in [*sorted(files), Path(__file__), Path(__file__).with_name("index.py")]:
        found.update(path.read_bytes())
    return found.hexdigest()


def _gone(file: Path) -> None:
    for one in (file, file.with_name(file.name + ".wal")):
        with contextlib.suppress(OSError):
            one.unlink(missing_ok=True)


def _main() -> None:
    import duckdb

    file, *paths = orjson.loads(sys.stdin.buffer.read())
    try:
        make([Run.open(Path(path)) for path in paths], Path(file))
    except ConvbenchError as error:
        print(" ".join(str(error).split()), flush=True)
        sys.exit(WRONG)
    except (duckdb.Error, OSError):
        sys.exit(NOT_KEPT)


if __name__ == "__main__":
    _main()
