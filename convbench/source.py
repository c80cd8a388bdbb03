"""Every file of rows, of logs as of questions: JSON lines, JSON and CSV, also compressed by gzip or
Zstandard, parquet and Inspect's archives; alone, in a folder, by a pattern, or on the Hub."""

import csv
import glob
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.util.hub import HUB, dataset_files, first_line
from convbench.util.regular import open_to_read
from convbench.util.untrusted import safe_text

NO_ROWS = (".md", ".txt", ".py", ".yaml", ".yml", ".toml", ".html", ".png", ".jpg", ".pdf", ".lock")
NORMAL = {"train": "train", "training": "train"}  # by the first word of a split's name; in order
NORMAL |= dict.fromkeys(("validation", "valid", "val", "dev", "eval"), "validation")
NORMAL["test"] = "test"
SPLIT = re.compile(rf"(?i)^((?:{'|'.join(NORMAL)})(?:_[a-z]+)?)(?:-\d+(?:-of-\d+)?)?\.")  # shards'
BROKEN = (OSError, EOFError, ValueError, RuntimeError, csv.Error, zlib.error, zipfile.BadZipFile)
Rows = Iterator[tuple[str, Any]]


@dataclass(frozen=True)
class File:
    """One file of a source."""

    name: str  # as the user calls it
    path: Path
    split: str | None = None  # that its name or the Hub says, as it is there: `train_sft`

    def rows(self, columns: Collection[str] | None = None) -> Rows:
        """Yield (place, value) of its rows, the value a DataError if one cannot be read; of parquet
        only `columns`, the others are null. Raise DataError if the file cannot be read."""
        with _opened(self) as file:
            head = file.peek(4)[:4]  # what a file is is seen there, not in its name
            if packed := {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}.get(head[:2]):
                import pyarrow

                file = io.BufferedReader(pyarrow.input_stream(file, packed))
            if head == b"PAR1":
                yield from _parquet_rows(self.name, file, columns)
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
    """Return (files of a name, a folder, a pattern, `hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]`;
    their `sha256:…` or commit). Raise DataError if there are none, HubError if the Hub refuses."""
    if source.startswith(HUB):
        match = re.fullmatch(r"([^:/@]+/[^:/@]+)(?::([^/@]+))?(?:/([^@]+))?(?:@(.+))?", source[5:])
        if match is None:
            raise DataError(f"{source}: expected hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]")
        repo, config, split, revision = match.groups()
        return open_hub(repo, config, (split,) if split else (), revision)
    path, digest = Path(source).expanduser(), hashlib.sha256()
    if path.is_file():
        files = [File(source, path, path.stem if path.stem in NORMAL else None)]
    else:
        pattern = f"{glob.escape(str(path))}/**/*" if path.is_dir() else str(path)
        skipped = NO_ROWS if path.is_dir() else ()
        found = sorted(filter(Path.is_file, map(Path, glob.glob(pattern, recursive=True))))
        found = [p for p in found if p.suffix.lower() not in skipped]
        files = [File(str(p), p, *SPLIT.findall(p.name)) for p in found]
    if not files:
        raise DataError(f"{source}: found no such file or folder; expected one, or hf://OWNER/NAME")
    for file in files:
        with _opened(file) as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return files, f"sha256:{digest.hexdigest()}"


def open_hub(
    repo: str, config: str | None, splits: Collection[str], revision: str | None
) -> tuple[list[File], str]:
    """Return (the files of a dataset's splits, of all without any named; its commit)."""
    found, commit = dataset_files(repo, config, splits, revision)
    files = [(name, file) for name in sorted(found, key=split_order) for file in found[name]]
    return [File(f"{HUB}{repo}/{inside}", path, name) for name, (inside, path) in files], commit


def normal_split(name: str | None) -> str | None:
    """Return train, validation or test by the first word of a split's name; None for another."""
    return NORMAL.get(re.split(r"[^a-z]", (name or "").lower(), maxsplit=1)[0])


def split_order(name: str) -> tuple[int, str]:
    """Return the key by which splits are sorted: train, validation, dev, test, then by name."""
    return ([*NORMAL, name].index(name), name)


def _json_rows(name: str, file: io.BufferedReader) -> Rows:
    first = file.readline()
    lines: Iterable[bytes] = chain([first], file)
    if re.match(rb"(\xef\xbb\xbf)?\s*[\[{]", first) and isinstance(_load(first), DataError):
        data = first + file.read()  # perhaps one value over many lines
        if not isinstance(value := _load(data), DataError):
            yield name, value
            return
        lines = io.BytesIO(data)
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{name}:{number}", _load(line)


def _load(data: bytes) -> Any:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(data)
    try:  # as others write it: NaN is null, half a character U+FFFD
        value = json.loads(data.decode("utf-8-sig"), parse_constant=lambda _: None)
        return json.loads(safe_text(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return DataError("not JSON in UTF-8")


def _csv_rows(name: str, file: io.BufferedReader) -> Rows:
    csv.field_size_limit(1 << 30)
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    head = text.readline()
    reader = csv.DictReader(chain([head], text), delimiter=max(",\t;", key=head.count))
    names = reader.fieldnames or ()
    if twice := [name for name in names if list(names).count(name) > 1]:
        raise DataError(f"{name}:1: found two columns {twice[0]!r}; expected one")
    for row in filter(lambda row: any(row.values()), reader):
        try:
            orjson.dumps(row)  # none of half a character, nor one under None: beyond the columns
            yield f"{name}:{reader.line_num}", row
        except TypeError:
            yield f"{name}:{reader.line_num}", DataError("more cells than columns, or not UTF-8")


def _parquet_rows(name: str, file: io.BufferedReader, columns: Collection[str] | None) -> Rows:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as table:
        names = table.schema_arrow.names
        read = [n for n in names if columns is None or n in columns] or names[:1]
        batches = table.iter_batches(batch_size=16, columns=read, use_threads=False)
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
            yield f"{name}:{number}", dict.fromkeys(names) | _plain(row)


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
    with zipfile.ZipFile(file) as archive:
        names = sorted(archive.namelist())
        heads = [n for n in ("header.json", "_journal/start.json") if n in names]
        header = _load_entry(archive, heads[0]) if heads else {}
        for entry in filter(re.compile(r"samples/.+\.json").fullmatch, names):
            sample = _load_entry(archive, entry)
            broken = isinstance(sample, DataError)
            yield f"{name}: {entry}", sample if broken else {"header": header, "sample": sample}


def _load_entry(archive: zipfile.ZipFile, name: str) -> Any:
    entry = archive.getinfo(name)
    try:
        if entry.compress_type != 93:
            return _load(archive.read(entry))
        import pyarrow  # for Zstandard, which zipfile reads from Python 3.14 on

        entry.compress_type, entry.file_size = zipfile.ZIP_STORED, entry.compress_size
        del entry.CRC  # what is read is not what it sums up
        return _load(pyarrow.input_stream(archive.open(entry), "zstd").read())
    except BROKEN as error:
        return DataError(f"cannot be unpacked: {error}")
