"""Every file of rows, of logs as of questions: JSON lines, JSON and CSV, also compressed by gzip or
Zstandard, parquet and Inspect's archives; alone, in a folder, by a pattern, or on the Hub.

    files, digest = open_source("logs/")
    for place, value in files[0].rows():      ("logs/a.jsonl:1", {"messages": […]})
"""

import csv
import glob
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.util.hub import HUB, dataset_files, first_line
from convbench.util.regular import open_to_read

SKIPPED = (".md", ".txt", ".py", ".yaml", ".yml", ".toml", ".html", ".png", ".jpg", ".pdf", ".lock")
"""Endings of files of a folder that hold no rows."""
SPLIT = re.compile(r"(?i)([a-z]+(?:_[a-z]+)?)(?:-\d+(?:-of-\d+)?)?\.")  # its shards' names too
SPLITS = ("train", "validation", "valid", "dev", "test")  # in order
NORMAL = {"train": "train", "training": "train", "test": "test"}
NORMAL |= dict.fromkeys(("validation", "valid", "val", "dev", "eval"), "validation")
BROKEN = (OSError, EOFError, ValueError, RuntimeError, csv.Error, zlib.error, zipfile.BadZipFile)
"""What readers raise for bytes that are not what their beginning says."""
Rows = Iterator[tuple[str, Any]]


@dataclass(frozen=True)
class File:
    """One file of a source."""

    name: str  # as the user calls it
    path: Path
    split: str | None = None  # that its name or the Hub says, as it is there: `train_sft`

    def rows(self, columns: Collection[str] | None = None) -> Rows:
        """Yield (place, value) of its rows; for one that cannot be read the value is the DataError
        that says why. A file that is one JSON value is one row. Of parquet only `columns` are read,
        the others are null. Raise DataError if the file cannot be read."""
        with _opened(self) as file:
            head = file.peek(4)[:4]  # what a file is is seen there, not in its name
            if packed := {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}.get(head[:2]):
                import pyarrow

                file = io.BufferedReader(pyarrow.input_stream(file, packed))
            if head == b"PAR1":
                yield from _parquet_rows(self, columns)
            elif head == b"PK\x03\x04":
                yield from _archive_rows(self.name, file)
            elif re.search(r"(?i)\.[ct]sv(\.gz|\.zst)?$", self.path.name):
                yield from _csv_rows(self.name, file)
            else:
                yield from _json_rows(self.name, file)


@contextmanager
def _opened(file: File) -> Iterator[io.BufferedReader]:
    try:
        with open_to_read(file.path) as content:
            yield content
    except BROKEN as error:
        why = getattr(error, "strerror", None) or first_line(error, 120)
        raise DataError(f"{file.name}: cannot be read: {why}") from None


def open_source(source: str) -> tuple[list[File], str]:
    """Return (the files of a file's name, a folder's, a pattern, or of
    `hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]`; what identifies their content: `sha256:…` or a
    commit). Raise DataError if there are none, HubError if the Hub refuses."""
    if source.startswith(HUB):
        match = re.fullmatch(r"([^:/@]+/[^:/@]+)(?::([^/@]+))?(?:/([^@]+))?(?:@(.+))?", source[5:])
        if match is None:
            raise DataError(f"{source}: expected hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]")
        repo, config, split, revision = match.groups()
        return open_hub(repo, config, (split,) if split else (), revision)
    path, digest = Path(source).expanduser(), hashlib.sha256()
    if path.is_file():
        files = [File(source, path, path.stem if path.stem in SPLITS else None)]
    else:
        pattern = f"{glob.escape(str(path))}/**/*" if path.is_dir() else str(path)
        found = sorted(filter(Path.is_file, map(Path, glob.glob(pattern, recursive=True))))
        skipped = SKIPPED if path.is_dir() else ()
        files = [File(str(p), p, _split_of(p)) for p in found if p.suffix.lower() not in skipped]
    if not files:
        raise DataError(f"{source}: found no such file or folder; expected one, or hf://OWNER/NAME")
    for file in files:
        with _opened(file) as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return files, f"sha256:{digest.hexdigest()}"


def open_hub(
    repo: str, config: str | None, splits: Collection[str], revision: str | None
) -> tuple[list[File], str]:
    """Return (the files of a dataset's splits, of all without any named; its commit): the cache
    stands in where the Hub cannot be reached. Raise HubError as `dataset_files` does."""
    found, commit = dataset_files(repo, config, splits, revision)
    files = [(name, file) for name in sorted(found, key=split_order) for file in found[name]]
    return [File(f"{HUB}{repo}/{inside}", path, name) for name, (inside, path) in files], commit


def _split_of(path: Path) -> str | None:
    match = SPLIT.match(path.name)
    return match[1] if match and normal_split(match[1]) else None


def normal_split(name: str | None) -> str | None:
    """Return train, validation or test by the first word of a split's name; None for another."""
    return NORMAL.get(re.split(r"[^a-z]", (name or "").lower(), maxsplit=1)[0])


def split_order(name: str) -> tuple[int, str]:
    """Return the key by which splits are sorted: train, validation, dev, test, then by name."""
    return (SPLITS.index(name) if name in SPLITS else len(SPLITS), name)


def _json_rows(name: str, file: io.BufferedReader) -> Rows:
    """Yield the values of JSON lines, or the one value of a file whose first line is none."""
    first, rest = file.readline(), iter(file)
    starts_value = first.lstrip(b"\xef\xbb\xbf").startswith((b"[", b"{"))
    if starts_value and isinstance(_load(first), DataError):
        data = file.read()
        whole = _load(first + data)
        if not isinstance(whole, DataError):
            yield name, whole
            return
        rest = io.BytesIO(data)
    for number, line in enumerate(chain([first], rest), 1):
        if line.strip():
            yield f"{name}:{number}", _load(line)


def _load(data: bytes) -> Any:
    """Return a JSON value, or the DataError that says why there is none. Half a character becomes
    the replacement character; a number that is none, which Python's own writer writes, null."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(data)
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return json.loads(text.decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        return DataError("not JSON in UTF-8")


def _csv_rows(name: str, file: io.BufferedReader) -> Rows:
    """Yield the rows of a table of commas, tabs or semicolons; its first line names columns."""
    csv.field_size_limit(1 << 30)
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    head = text.readline()
    reader = csv.DictReader(chain([head], text), delimiter=max(",\t;", key=head.count))
    names = list(reader.fieldnames or ())
    if twice := [column for column in names if names.count(column) > 1]:
        raise DataError(f"{name}:1: found two columns {twice[0]!r}; expected one")
    for row in filter(lambda row: any(row.values()), reader):
        try:
            orjson.dumps(row)  # none of half a character, nor one under None: beyond the columns
            yield f"{name}:{reader.line_num}", row
        except TypeError:
            why = f"more cells than {len(names)}, or bytes that are not UTF-8"
            yield f"{name}:{reader.line_num}", DataError(why)


def _parquet_rows(file: File, columns: Collection[str] | None) -> Rows:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file.path) as table:
        names = table.schema_arrow.names
        read = [n for n in names if columns is None or n in columns] or names[:1]
        batches = table.iter_batches(batch_size=16, columns=read, use_threads=False)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, 1):
            yield f"{file.name}:{number}", dict.fromkeys(names) | _plain(row)


def _plain(value: Any) -> Any:
    """Return a value of JSON: times as text, and `[media]` for a picture, a sound, other bytes."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and value.keys() != {"bytes", "path"}:
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, bytes | dict):
        return "[media]"
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _archive_rows(name: str, file: io.BufferedReader) -> Rows:
    """Yield the samples of an archive of Inspect's, each as {"header": …, "sample": …}."""
    with zipfile.ZipFile(file) as archive:
        names = sorted(archive.namelist())
        heads = (n for n in ("header.json", "_journal/start.json") if n in names)
        header: Any = next((_unpack(archive, file, n) for n in heads), {})
        for entry in (n for n in names if re.fullmatch(r"samples/.+\.json", n)):
            sample = _unpack(archive, file, entry)
            broken = isinstance(sample, DataError)
            yield f"{name}: {entry}", sample if broken else {"header": header, "sample": sample}


def _unpack(archive: zipfile.ZipFile, file: io.BufferedReader, name: str) -> Any:
    """Return the value of an archive's file, or the DataError that says why there is none."""
    entry = archive.getinfo(name)
    try:
        if entry.compress_type != 93:
            return _load(archive.read(name))
        import pyarrow

        # Zstandard, which zipfile cannot read (APPNOTE 6.3.10, 4.3.7): after a header of 30 bytes,
        # which ends with the lengths of the file's name and of an extra field, and these two.
        file.seek(entry.header_offset + 26)
        file.seek(sum(int.from_bytes(file.read(2), "little") for _ in range(2)), 1)
        data = file.read(entry.compress_size)
        return _load(pyarrow.decompress(data, entry.file_size, "zstd", asbytes=True))
    except BROKEN as error:
        return DataError(f"cannot be unpacked: {error}")
