"""The user's folder of sidecars: Parquet files that hold the index of files of runs.

Only a complete file of this user's own, which nobody else can write, is read. Where the folder
cannot be used, which is reported once, nothing is stored and callers keep their rows in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from convbench import schema
from convbench.util.cache import cache_folder
from convbench.util.regular import open_to_read

SETTLE_SECONDS = 2.0
"""A file that changed later than this is not stored: another change could carry the same time."""
LARGEST = 10 << 30
"""Bytes of all sidecars; those that were used longest ago go first."""
LEFT_S = 24 * 3600.0
"""Age in seconds at which a temporary file is a killed process's."""
MAGIC = b"PAR1"
"""How a Parquet file begins and, once it is complete, ends."""
GLOB = frozenset("*?[")
"""What would be no letter of a name where DuckDB reads files."""
NOWHERE = Path(os.devnull) / "index"
"""A folder that cannot be."""
log = logging.getLogger("convbench.index")


class FileIdentity(NamedTuple):
    """What differs between two states of a file, and between two files."""

    folder: str
    name: str
    device: int
    inode: int
    size: int
    changed_ns: int

    def is_settled(self) -> bool:
        """Return True if the file changed more than 2 s ago, so that another change would carry
        another time."""
        return time.time() - self.changed_ns / 1e9 > SETTLE_SECONDS


def identify_file(path: Path, stream: BinaryIO) -> FileIdentity:
    """Return what identifies an open file: real folder, name, device, inode, size and change
    time."""
    known = os.fstat(stream.fileno())
    folder = os.path.realpath(path.parent)
    return FileIdentity(
        folder, path.name, known.st_dev, known.st_ino, known.st_size, known.st_ctime_ns
    )


def identify_path(path: Path) -> FileIdentity | None:
    """Return what identifies a file; None without one."""
    try:
        with open_to_read(path) as stream:
            return identify_file(path, stream)
    except FileNotFoundError:
        return None


class Sidecars:
    """The sidecars of one table."""

    def __init__(self, table: str, depends_on: str = "") -> None:
        """`depends_on`: what rows depend on beside the file and the program that makes them."""
        self._table = table, depends_on
        self._stored = False
        try:
            self._folder = cache_folder("index")
        except RuntimeError as error:  # no home: a user without an entry in a container, say
            _report_once(Path("~"), str(error))
            self._folder = NOWHERE

    def find_sidecar(self, identity: FileIdentity) -> Path | None:
        """Return the path of a file's sidecar, or None if there is none that can be trusted.

        Its modification time is set to now, by which sidecars are pruned.
        """
        path = self._sidecar_path(identity)
        with contextlib.suppress(OSError), open_to_read(path) as file:
            known = os.fstat(file.fileno())
            if path.is_symlink() or not _is_own(known) or not _is_own(self._folder.lstat()):
                return None
            file.seek(-len(MAGIC), os.SEEK_END)
            if file.read() == MAGIC and GLOB.isdisjoint(str(path)):
                os.utime(path)
                return path
        return None

    def store_rows(
        self, identity: FileIdentity, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
    ) -> Path | None:
        """Write a file's rows, which begin with their first byte and length, as its sidecar, and
        return the path.

        Return None where it cannot be stored, which is logged once.
        """
        return self._store_sidecar(identity, lambda file: write_rows(file, columns, [rows]))

    def store_file(self, identity: FileIdentity, source: Path) -> Path | None:
        """Copy a Parquet file as the sidecar of a file and return the path; None where it cannot be
        stored."""
        with source.open("rb") as opened:
            return self._store_sidecar(identity, partial(shutil.copyfileobj, opened))

    def _store_sidecar(
        self, identity: FileIdentity, fill: Callable[[BinaryIO], object]
    ) -> Path | None:
        if self._folder == NOWHERE or not self._make_folder():
            return None
        path = self._sidecar_path(identity)
        temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.tmp")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            _report_once(self._folder, error.strerror or str(error))
            return None
        self._stored = True
        return path

    def discard_sidecar(self, sidecar: Path | None) -> None:
        """Remove a sidecar that cannot be read. None, a missing file and errors are ignored."""
        if sidecar is not None:
            with contextlib.suppress(OSError):
                sidecar.unlink(missing_ok=True)

    def prune_folder(self, most: int = LARGEST) -> None:
        """After this object has stored something, remove the sidecars used longest ago beyond
        `most` bytes.

        Temporary files older than a day go too. Errors are ignored.
        """
        if self._stored:
            with contextlib.suppress(OSError):
                _prune_files(self._folder, most)
            self._stored = False

    def _sidecar_path(self, identity: FileIdentity) -> Path:
        name = repr((self._table, tuple(identity), _hash_program())).encode(
            "utf-8", "surrogatepass"
        )
        return self._folder / f"{hashlib.sha256(name).hexdigest()[:40]}.parquet"

    def _make_folder(self) -> bool:
        """Make the folder; return False where it is not this user's own."""
        try:
            if not GLOB.isdisjoint(str(self._folder)):
                raise OSError(0, "its name contains a wildcard character")
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            known = self._folder.lstat()
            if not stat.S_ISDIR(known.st_mode) or not _is_own(known):
                raise PermissionError(0, "not a folder of this user alone")
            if known.st_mode & 0o077:
                self._folder.chmod(0o700)
        except OSError as error:
            _report_once(self._folder, error.strerror or str(error))
            return False
        return True


def write_rows(
    file: BinaryIO, columns: Mapping[str, str], batches: Iterable[Sequence[Sequence[Any]]]
) -> None:
    """Write rows, which begin with their first byte and length, as Parquet with `start`, `length`
    and `columns`.

    `columns` gives Arrow types by name. Rows are written batch by batch.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"start": "int64", "length": "int64", **columns}
    layout = pa.schema([(name, _arrow_type(kind)) for name, kind in kinds.items()])
    with pq.ParquetWriter(file, layout, compression="zstd") as writer:
        for rows in batches:
            values = zip(*rows, strict=True) if rows else ([] for _ in layout)
            arrays = [
                pa.array(column, field.type) for column, field in zip(values, layout, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=layout))


def _is_own(known: os.stat_result) -> bool:
    """Whether a file is this user's own, and nobody else may write it."""
    return known.st_uid == os.geteuid() and not known.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _prune_files(folder: Path, most: int) -> None:
    """Remove what killed processes left, and the sidecars used longest ago beyond `most` bytes."""
    known = [(path, path.lstat()) for path in folder.iterdir()]
    for path, status in known:
        if path.suffix == ".tmp" and time.time() - status.st_mtime > LEFT_S:
            path.unlink(missing_ok=True)
    sidecars = [
        (status.st_mtime_ns, status.st_size, path)
        for path, status in known
        if path.suffix == ".parquet"
    ]
    size = sum(one_size for _, one_size, _ in sidecars)
    for _, freed, path in sorted(sidecars):
        if size <= most:
            return
        path.unlink(missing_ok=True)
        size -= freed


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    inner = kind.removeprefix("list<").removesuffix(">")
    return pa.type_for_alias(kind) if inner == kind else pa.list_(pa.type_for_alias(inner))


@cache
def _report_once(folder: Path, why: str) -> None:
    log.warning(
        "no index can be stored in %s (%s): records are indexed in memory each time", folder, why
    )


def hash_files(paths: Iterable[Path]) -> str:
    """Return the SHA-256, as hex digits, of the contents of these files, joined in the order of
    their paths.

    Raises OSError.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _hash_program() -> str:
    """Return a hash of what makes sidecars: another program would fill them otherwise."""
    versions = f"{sys.version_info[:2]} {version('pydantic')} {version('orjson')}"
    own = Path(__file__).parent
    files = [*Path(schema.__file__ or "").parent.glob("*.py"), *(own / name for name in MADE_BY)]
    return versions + hash_files(files)


MADE_BY = ("index.py", "keys.py", "shape.py", "sidecars.py")
"""Files of this folder whose change makes sidecars anew."""
