"""Read the rows of logs: JSON lines, a JSON list, CSV, parquet, a log of Inspect (each also
gzipped), or a dataset on the Hub."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from convbench.errors import DataError
from convbench.formats.inspect_log import is_log, log_rows
from convbench.formats.shapes import from_text
from convbench.hub.rows import read_json
from convbench.regular import open_to_read
from convbench.schema.task import Source
from convbench.store.scratch import scratch

HUB = "hf://"
"""Prefix of a dataset's name on the Hub: hf://OWNER/NAME."""
TABLES = (".parquet", ".csv", ".json")
LARGEST = 4 << 30
"""Most bytes of a gzipped file, unpacked."""
Row = tuple[str, int, Any]
"""(place in words, number from 1, the row). For a line that is not JSON the row is the DataError.
"""


def logged_rows(place: str, left_out: list[str]) -> tuple[Iterator[Row], str]:
    """Return (rows, `sha256:…` or the commit). Rows of a dataset on the Hub get its split if they
    have none. Samples of a log without a reply are appended to `left_out` as the rows are read.
    Raises DataError naming file and line, or HubError."""
    if place.startswith(HUB):
        return _of_a_set(place.removeprefix(HUB))
    path = Path(place)
    return _unpacked(path, left_out) if path.suffix == ".gz" else _of_a_file(path, left_out)


def _of_a_file(path: Path, left_out: list[str]) -> tuple[Iterator[Row], str]:
    if is_log(path):
        return log_rows(path, left_out)
    return _of_a_table(path) if path.suffix in TABLES else _of_lines(path)


def _unpacked(path: Path, left_out: list[str]) -> tuple[Iterator[Row], str]:
    """Return (rows, digest) of a gzipped file, which is unpacked into a temporary folder while they
    are read. The digest is of the unpacked content."""
    folder = scratch()
    folder.mkdir(mode=0o700)
    inner = folder / path.with_suffix("").name
    try:
        _gunzip(path, inner)
        rows, digest = _of_a_file(inner, left_out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise

    def read() -> Iterator[Row]:
        try:
            for where, number, row in rows:
                yield where.replace(str(inner), str(path), 1), number, row
        except DataError as error:
            raise DataError(str(error).replace(str(inner), str(path), 1)) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return read(), digest


def _gunzip(path: Path, inner: Path) -> None:
    """Write the content of a gzipped file. Raises DataError if it is not gzipped or too large."""
    try:
        with gzip.open(path) as packed, inner.open("wb") as file:
            while block := packed.read(1 << 20):
                file.write(block)
                if file.tell() > LARGEST:
                    raise DataError(
                        f"{path}: found more than {LARGEST >> 30} GiB when unpacked; refused"
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked: {error}") from None


def _of_a_set(name: str) -> tuple[Iterator[Row], str]:
    from convbench.hub.rows import open_rows

    repo, _, revision = name.partition("@")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise DataError(f"{HUB}{name}: expected {HUB}OWNER/NAME, or {HUB}OWNER/NAME@REVISION")
    rows, commit = open_rows(Source(hub=repo, revision=revision or None))
    return _numbered(f"{HUB}{repo}", rows), commit


def _of_a_table(path: Path) -> tuple[Iterator[Row], str]:
    from convbench.hub.rows import open_rows

    if not path.is_file():
        raise DataError(f"{path}: found no such file; expected JSON lines, JSON, CSV or parquet")
    rows, digest = open_rows(Source(file=str(path)))
    texts = path.suffix == ".csv"
    return _numbered(str(path), rows, texts=texts, split=False), digest


def _numbered(
    name: str, rows: Iterable[dict[str, Any]], *, texts: bool = False, split: bool = True
) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        where = f"{name}: row {number}"
        found = dict(row)
        of = found.pop("_split", None)
        if split and of is not None and found.get("split") is None:
            found["split"] = of
        found = {key: value for key, value in found.items() if value is not None}
        yield where, number, from_text(found, where) if texts else found


def _loaded(line: bytes, where: str) -> Any:
    try:
        return read_json(line, where)
    except DataError as error:
        return error


def _of_lines(path: Path) -> tuple[Iterator[Row], str]:
    """Return (rows, digest) of a file of JSON lines. It is hashed again while it is read, so that
    the digest belongs to the rows. Raises DataError if it was changed in between."""
    try:
        with open_to_read(path) as file:
            mark = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None

    def rows() -> Iterator[Row]:
        again = hashlib.sha256()
        with open_to_read(path) as file:
            for number, line in enumerate(file, 1):
                again.update(line)
                if line.strip():
                    where = f"{path}:{number}"
                    yield where, number, _loaded(line, where)
        if again.hexdigest() != mark:
            raise DataError(f"{path}: was changed while it was read; import it again")

    return rows(), f"sha256:{mark}"
