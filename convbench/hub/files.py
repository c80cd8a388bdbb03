"""Rows from local files: parquet, JSON lines, CSV, or a folder of one file a split."""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.hub.tables import CELL, Columns, Part, Row, parquet
from convbench.regular import open_to_read

KINDS = (".parquet", ".jsonl", ".json", ".csv")
SPLITS = ("train", "validation", "valid", "dev", "test")
"""Names of a single file that say which split it is."""
WHOLE = 512 << 20
"""Bytes of a JSON file that is one list, which is read whole."""
LINE = 16 << 20
"""Bytes of one line."""


def read_files(place: str) -> tuple[dict[str, Part], str]:
    """Return (what yields the rows, by split; `sha256:…` of the contents) of a file or a folder
    of files.

    A single file is one split: the one it is named after (`test.parquet`), else `train`. Raises
    DataError.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        files: dict[str, Path] = {}
        for file in sorted(path.iterdir()):
            if file.suffix in KINDS:
                _alone(files, file)
        if not files:
            raise DataError(f"{place}: found no SPLIT.parquet, .jsonl or .csv in this folder")
    elif path.is_file():
        files = {path.stem if path.stem in SPLITS else "train": path}
    else:
        raise DataError(
            f"{place}: found no such file or folder; name one: --set task.source.file=PATH"
        )
    return {split: partial(_read, file) for split, file in files.items()}, _hash(files)


def _alone(files: dict[str, Path], file: Path) -> None:
    """Take a split's file. Raises DataError where another one is of the same split."""
    other = files.setdefault(file.stem, file)
    if other != file:
        raise DataError(
            f"{file.parent}: found {other.name} and {file.name}; expected one file for split "
            f"{file.stem}; join them, or name one: --set task.source.file={file}"
        )


def read_json(data: bytes | str, where: str) -> Any:
    """Return what JSON of others holds. Raises DataError where it is none, and for a key that an
    object has twice, of which a reader would take one and never tell. A byte order mark, with which
    some programs begin a file, is passed over."""
    if isinstance(data, bytes):
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        found = orjson.loads(data)
        json.loads(data, object_pairs_hook=_once)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error}; expected one object a line") from None
    except _Twice as error:
        key = str(error)[:60]
        raise DataError(f"{where}: found the key {key!r} twice; expected one") from None
    except RecursionError:
        raise DataError(f"{where}: found values nested too deeply; expected fewer levels") from None
    return found


class _Twice(Exception):
    """A key that stands twice in one object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _Twice(max(counts, key=counts.__getitem__))
    return found


def _hash(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for split, path in sorted(files.items()):
        try:
            with open_to_read(path) as file:
                found = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
        digest.update(split.encode() + b"\0" + found)
    return f"sha256:{digest.hexdigest()}"


def _read(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of one file. Raises DataError naming file and line."""
    readers = {".csv": _csv, ".jsonl": _json, ".json": _json}
    try:
        if path.suffix == ".parquet":
            yield from parquet(path, columns)
        elif path.suffix in readers:
            yield from readers[path.suffix](path)
        else:
            kinds = ", ".join(KINDS)
            raise DataError(f"{path}: found {path.suffix or 'no'} file type; expected {kinds}")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: found bytes that are not UTF-8; expected UTF-8 text") from None


def _csv(path: Path) -> Iterator[Row]:
    """Every value is text; an empty one stays an empty text."""
    before = csv.field_size_limit(CELL)
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            reader = csv.DictReader(file, strict=True)
            _once([(name, None) for name in reader.fieldnames or ()])
            for row in reader:
                yield dict(row)
        except _Twice as error:
            raise DataError(
                f"{path}:1: found two columns {str(error)[:60]!r}; expected one"
            ) from None
        except csv.Error as error:
            raise DataError(f"{path}: not a CSV file: {error}") from None
        finally:
            csv.field_size_limit(before)


def _json(path: Path) -> Iterator[Row]:
    """JSON lines, or one JSON list of objects."""
    with path.open("rb") as file:
        mark = file.read(len(codecs.BOM_UTF8))
        file.seek(len(mark) if mark == codecs.BOM_UTF8 else 0)
        while (first := file.read(1)).isspace():
            pass
        file.seek(0)
        if first == b"[":
            data = file.read(WHOLE + 1)
            if len(data) > WHOLE:
                raise DataError(f"{path}: found a list of more than {WHOLE:,} bytes; "
                                "expected JSON lines, one object a line")  # fmt: skip
            yield from _objects(f"{path}:1", data, whole=True)
            return
        number = 0
        while line := file.readline(LINE + 1):
            number += 1
            if len(line) > LINE:
                raise DataError(f"{path}:{number}: found a line of more than {LINE:,} bytes")
            if line.strip():
                yield from _objects(f"{path}:{number}", line, whole=False)


def _objects(where: str, data: bytes, *, whole: bool) -> Iterator[Row]:
    value = read_json(data, where)
    for row in value if whole else [value]:
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected JSON objects, one per row")
        yield row
