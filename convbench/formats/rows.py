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
from convbench.formats.inspect_log import Row as Row
from convbench.formats.inspect_log import is_log, log_rows
from convbench.formats.shapes import from_spreadsheet
from convbench.schema.task import Source
from convbench.sources.rows import read_json
from convbench.store.scratch import scratch_path
from convbench.util.regular import open_to_read

HUB = "hf://"
"""Prefix of a dataset's name on the Hub: hf://OWNER/NAME."""
TABLES = (".parquet", ".csv", ".json")
LARGEST = 4 << 30
"""Most bytes of a gzipped file, unpacked."""


def logged_rows(source: str, left_out: list[str]) -> tuple[Iterator[Row], str]:
    """Return (an iterator of (place, number from 1, row), the digest `sha256:…` of the file or the
    commit of the dataset).

    A line that is not JSON gives its DataError as the row. Rows of a dataset on the Hub get its
    split if they have none. Samples of a log of Inspect without a reply are appended to `left_out`
    as the rows are read. Raise DataError naming file and line, partly only while rows are read, or
    HubError.
    """
    if source.startswith(HUB):
        return _hub_rows(source.removeprefix(HUB))
    path = Path(source)
    return _gzip_rows(path, left_out) if path.suffix == ".gz" else _file_rows(path, left_out)


def _file_rows(path: Path, left_out: list[str]) -> tuple[Iterator[Row], str]:
    if is_log(path):
        return log_rows(path, left_out)
    return _table_rows(path) if path.suffix in TABLES else _line_rows(path)


def _gzip_rows(path: Path, left_out: list[str]) -> tuple[Iterator[Row], str]:
    """Return (rows, digest) of a gzipped file, which is unpacked into a temporary folder while they
    are read. The digest is of the unpacked content."""
    folder = scratch_path()
    folder.mkdir(mode=0o700)
    inner = folder / path.with_suffix("").name
    try:
        _unpack_gzip(path, inner)
        rows, digest = _file_rows(inner, left_out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise

    def read_rows() -> Iterator[Row]:
        try:
            for where, number, row in rows:
                yield where.replace(str(inner), str(path), 1), number, row
        except DataError as error:
            raise DataError(str(error).replace(str(inner), str(path), 1)) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return read_rows(), digest


def _unpack_gzip(path: Path, inner: Path) -> None:
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


def _hub_rows(name: str) -> tuple[Iterator[Row], str]:
    from convbench.sources.rows import open_rows

    repo, _, revision = name.partition("@")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise DataError(f"{HUB}{name}: expected {HUB}OWNER/NAME, or {HUB}OWNER/NAME@REVISION")
    rows, commit = open_rows(Source(hub=repo, revision=revision or None))
    return _number_rows(f"{HUB}{repo}", rows), commit


def _table_rows(path: Path) -> tuple[Iterator[Row], str]:
    from convbench.sources.rows import open_rows

    if not path.is_file():
        raise DataError(f"{path}: found no such file; expected JSON lines, JSON, CSV or parquet")
    rows, digest = open_rows(Source(file=str(path)))
    texts = path.suffix == ".csv"
    return _number_rows(str(path), rows, texts=texts, split=False), digest


def _number_rows(
    name: str, rows: Iterable[dict[str, Any]], *, texts: bool = False, split: bool = True
) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        where = f"{name}: row {number}"
        fields = dict(row)
        of = fields.pop("_split", None)
        if split and of is not None and fields.get("split") is None:
            fields["split"] = of
        fields = {key: value for key, value in fields.items() if value is not None}
        yield where, number, from_spreadsheet(fields, where) if texts else fields


def _load_line(line: bytes, where: str) -> Any:
    try:
        return read_json(line, where)
    except DataError as error:
        return error


def _line_rows(path: Path) -> tuple[Iterator[Row], str]:
    """Return (rows, digest) of a file of JSON lines. It is hashed again while it is read, so that
    the digest belongs to the rows. Raises DataError if it was changed in between."""
    try:
        with open_to_read(path) as file:
            mark = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None

    def read_rows() -> Iterator[Row]:
        again = hashlib.sha256()
        with open_to_read(path) as file:
            for number, line in enumerate(file, 1):
                again.update(line)
                if line.strip():
                    where = f"{path}:{number}"
                    yield where, number, _load_line(line, where)
        if again.hexdigest() != mark:
            raise DataError(f"{path}: was changed while it was read; import it again")

    return read_rows(), f"sha256:{mark}"
