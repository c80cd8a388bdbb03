"""Rows from local files: parquet, JSON lines, CSV, or a folder of one file a split."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.hub.media import rows_of

KINDS = (".parquet", ".jsonl", ".json", ".csv")
SPLITS = ("train", "validation", "valid", "dev", "test")
"""Names of a single file that say which split it is."""
Rows = list[dict[str, Any]]


def read_files(place: str) -> tuple[dict[str, Rows], str]:
    """Return (rows by split, `sha256:…` of the contents) of a file or a folder of files.

    A single file is one split: the one it is named after (`test.parquet`), else `train`. Raises
    DataError.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix in KINDS}
        if not files:
            raise DataError(f"{place}: found no SPLIT.parquet, .jsonl or .csv in this folder")
    elif path.is_file():
        files = {path.stem if path.stem in SPLITS else "train": path}
    else:
        raise DataError(
            f"{place}: found no such file or folder; name one: --set task.source.file=PATH"
        )
    return {split: _read(file) for split, file in files.items()}, _hash(files)


def _hash(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for split, file in sorted(files.items()):
        digest.update(split.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def _read(path: Path) -> Rows:
    try:
        if path.suffix == ".parquet":
            return _parquet(path)
        if path.suffix == ".csv":
            return _csv(path)
        if path.suffix in (".jsonl", ".json"):
            return _json(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: found bytes that are not UTF-8; expected UTF-8 text") from None
    raise DataError(f"{path}: found {path.suffix or 'no'} file type; expected {', '.join(KINDS)}")


def _parquet(path: Path) -> Rows:
    import pyarrow
    import pyarrow.parquet

    try:
        return rows_of(pyarrow.parquet.ParquetFile(path).read())
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a parquet file: {error}") from None


def _csv(path: Path) -> Rows:
    """Every value is text; an empty one stays an empty text."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return [dict(row) for row in csv.DictReader(file, strict=True)]
        except csv.Error as error:
            raise DataError(f"{path}: not a CSV file: {error}") from None


def _json(path: Path) -> Rows:
    """JSON lines, or one JSON list of objects."""
    data = path.read_bytes()
    if data.lstrip()[:1] == b"[":
        return _objects(path, [(1, data)], whole=True)
    return _objects(path, list(enumerate(data.splitlines(), 1)), whole=False)


def _objects(path: Path, pieces: list[tuple[int, bytes]], *, whole: bool) -> Rows:
    rows: Rows = []
    for number, piece in pieces:
        if not piece.strip():
            continue
        try:
            value = orjson.loads(piece)
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: not JSON: {error}") from None
        found = value if whole else [value]
        if not all(isinstance(row, dict) for row in found):
            raise DataError(f"{path}:{number}: expected JSON objects, one a row")
        rows.extend(found)
    return rows
