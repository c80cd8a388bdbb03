"""Every file of rows, of logs as of questions: JSON lines, JSON, CSV, parquet and Inspect's
archives, each also gzipped or compressed with Zstandard, alone, in a folder, by a pattern, or on
the Hub as `hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]`.

    files, digest = open_source("logs/")
    for place, value in files[0].rows():      ("logs/a.jsonl:1", {"messages": […]})

What a file is is seen in its first bytes, not in its name. A row that cannot be read is yielded as
the DataError that says why, in its place among the others: one odd row never refuses a file.
"""

from __future__ import annotations

import codecs
import csv
import glob
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from convbench.errors import DataError
from convbench.util.hub import HUB, dataset_files, first_line
from convbench.util.regular import open_to_read

LINE = 64 << 20
"""Most bytes of one record."""
WHOLE = 1 << 30
"""Most bytes of a file that is one JSON value."""
BATCH = 16
"""Rows of a parquet file that are converted at a time."""
PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}
"""How a file is compressed by its first bytes."""
SKIPPED = (".md", ".txt", ".py", ".yaml", ".yml", ".toml", ".html", ".png", ".jpg", ".pdf", ".lock")
"""Endings of files of a folder that hold no rows."""
SPLIT = re.compile(r"(?i)([a-z]+(?:_[a-z]+)?)(?:-\d+(?:-of-\d+)?)?\.")
"""The name of a file of a split, of one of its shards too."""
SPLITS = ("train", "validation", "valid", "dev", "test")
"""Names of a single file that say its split, and the order of splits."""
UNREAD = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as Python holds it in a text."""
MEDIA = "[media]"
"""Stands for a picture, sound or film, which is not loaded."""
Row = tuple[str, Any]
"""(place in words, the value or the DataError that says why it cannot be read)."""


@dataclass(frozen=True)
class File:
    """One file of a source."""

    name: str
    """As the user calls it."""
    path: Path
    split: str | None = None
    """The split that its name or the Hub says, as it is there: `train_sft`."""

    def rows(self, columns: Collection[str] | None = None) -> Iterator[Row]:
        """Yield its rows in order; a file that is one JSON value is one row. Of parquet only
        `columns` are read, and the others are null. Raise DataError if it cannot be opened."""
        try:
            with open_to_read(self.path) as file:
                head = file.read(4)
                file.seek(0)
                if head == b"PAR1":
                    yield from _parquet_rows(self.name, self.path, columns)
                elif head == b"PK\x03\x04":
                    yield from _archive_rows(self.name, file)
                else:
                    yield from _text_rows(self, file, PACKED.get(head[:2]))
        except (OSError, EOFError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
            why = getattr(error, "strerror", None) or first_line(error, 120)
            raise DataError(f"{self.name}: cannot be read: {why}") from None


def open_source(source: str) -> tuple[list[File], str]:
    """Return (the files of a source, what identifies their content: `sha256:…` or a commit).

    Raise DataError if there are none, HubError if the Hub refuses.
    """
    if source.startswith(HUB):
        match = re.fullmatch(r"([^:/@]+/[^:/@]+)(?::([^/@]+))?(?:/([^@]+))?(?:@(.+))?", source[5:])
        if match is None:
            raise DataError(f"{source}: expected hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]")
        repo, config, split, revision = match.groups()
        return open_hub(repo, config, (split,) if split else (), revision)
    path = Path(source).expanduser()
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and _is_data(p.relative_to(path)))
        files = [File(str(p), p, split_of(p)) for p in found]
    elif path.is_file():
        files = [File(source, path, path.stem if path.stem in SPLITS else None)]
    else:
        files = [File(name, Path(name)) for name in sorted(glob.glob(str(path), recursive=True))]
    if not files:
        raise DataError(
            f"{source}: found no such file or folder; expected one of JSON lines, JSON, CSV, "
            "parquet or logs, or hf://OWNER/NAME"
        )
    digest = hashlib.sha256()
    for file in files:
        try:
            with open_to_read(file.path) as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"{file.name}: cannot be read: {error.strerror or error}") from None
    return files, f"sha256:{digest.hexdigest()}"


def _is_data(path: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and path.suffix.lower() not in SKIPPED


def split_of(path: Path) -> str | None:
    """Return the split that a file's name says, of one of its shards too; None if it says none."""
    match = SPLIT.match(path.name)
    return match[1] if match and normal_split(match[1]) else None


def normal_split(name: str | None) -> str | None:
    """Return train, validation or test by the first word of a split's name; None for another."""
    word = re.split(r"[^a-z]", (name or "").lower(), maxsplit=1)[0]
    if word in ("validation", "valid", "val", "dev", "eval"):
        return "validation"
    return {"training": "train"}.get(word, word) if word in ("train", "training", "test") else None


def open_hub(
    repo: str, config: str | None, splits: Collection[str], revision: str | None
) -> tuple[list[File], str]:
    """Return (the files of a dataset's splits, of all without any named; its commit), downloaded
    unless they are in the cache, which stands in where the Hub cannot be reached.

    Raise HubError if the Hub refuses, or for an unknown config or split.
    """
    found, commit = dataset_files(repo, config, splits, revision)
    files = [(name, file) for name in sorted(found, key=split_order) for file in found[name]]
    return [File(f"{HUB}{repo}/{inside}", path, name) for name, (inside, path) in files], commit


def split_order(name: str) -> tuple[int, str]:
    """Return the key by which splits are sorted: train, validation, dev, test, then by name."""
    return (SPLITS.index(name) if name in SPLITS else len(SPLITS), name)


def _text_rows(file: File, content: BinaryIO, packed: str | None) -> Iterator[Row]:
    """Yield the rows of a text, compressed or not."""
    if packed:
        import pyarrow

        content = cast("BinaryIO", io.BufferedReader(pyarrow.input_stream(content, packed)))
    ending = Path(file.path.name.removesuffix(".gz").removesuffix(".zst")).suffix.lower()
    yield from (_csv_rows if ending in (".csv", ".tsv") else _json_rows)(file.name, content)


def _json_rows(name: str, file: BinaryIO) -> Iterator[Row]:
    """Yield the values of JSON lines, or the one value of a JSON file. It is the latter if its
    first line alone is no value, or there is no other line."""
    lines = enumerate(iter(lambda: file.readline(LINE + 1), b""), 1)
    number, line = next(((number, line) for number, line in lines if line.strip()), (0, b""))
    line = line.removeprefix(codecs.BOM_UTF8)
    value = _load(line)
    if isinstance(value, DataError) and line.lstrip()[:1] in (b"[", b"{"):
        rest = file.read(WHOLE)
        whole = _load(line + rest, WHOLE)
        if not isinstance(whole, DataError):
            yield name, whole
            return
        lines = enumerate(io.BytesIO(rest), number + 1)
    if number:
        yield f"{name}:{number}", value
    for number, line in lines:
        if line.strip():
            yield f"{name}:{number}", _load(line)


def _load(data: bytes, most: int = LINE) -> Any:
    """Return a JSON value, or the DataError that says why there is none. Half a character becomes
    the replacement character; a number that is none, which Python's own writer writes, null."""
    if len(data) > most:
        return DataError(f"a record of more than {most >> 20} MiB")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(data.decode(), parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False)
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except UnicodeDecodeError:
        return DataError("bytes that are not UTF-8")
    except (ValueError, RecursionError):
        return DataError("not JSON")


def _csv_rows(name: str, file: BinaryIO) -> Iterator[Row]:
    """Yield the rows of a table whose first line names the columns, separated by commas, tabs or
    semicolons."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    head = text.readline()
    sign = max(",\t;", key=head.count)
    names = next(csv.reader([head], delimiter=sign), [])
    twice = [column for column in names if names.count(column) > 1]
    if twice:
        raise DataError(f"{name}:1: found two columns {twice[0]!r}; expected one")
    csv.field_size_limit(LINE)
    reader, number = csv.reader(text, delimiter=sign), 2
    try:
        for cells in reader:
            where, number = f"{name}:{number}", reader.line_num + 2
            if len(cells) > len(names):
                yield where, DataError(f"found {len(cells)} cells; expected {len(names)}")
            elif any(map(UNREAD.search, cells)):
                yield where, DataError("bytes that are not UTF-8")
            elif any(cells):
                yield where, dict(zip(names, cells, strict=False))
    except csv.Error as error:
        yield f"{name}:{number}", DataError(f"no row of a table ({error})")


def _parquet_rows(name: str, path: Path, columns: Collection[str] | None) -> Iterator[Row]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        names = file.schema_arrow.names
        read = [n for n in names if columns is None or n in columns] or names[:1]
        batches = file.iter_batches(batch_size=BATCH, columns=read, use_threads=False)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, 1):
            yield f"{name}:{number}", dict.fromkeys(names) | _plain(row)


def _plain(value: Any) -> Any:
    """Return a value of JSON: pictures, sounds and other bytes as marks, times as text."""
    if isinstance(value, bytes) or (isinstance(value, dict) and value.keys() == {"bytes", "path"}):
        return MEDIA
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _archive_rows(name: str, file: BinaryIO) -> Iterator[Row]:
    """Yield the samples of an archive of Inspect's, each as {"header": …, "sample": …}."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        heads = [n for n in ("header.json", "_journal/start.json") if n in names]
        header = _unpack(archive, heads[0], file) if heads else {}
        for entry in sorted(n for n in names if re.fullmatch(r"samples/.+\.json", n)):
            sample = _unpack(archive, entry, file)
            is_read = not isinstance(sample, DataError)
            yield f"{name}: {entry}", {"header": header, "sample": sample} if is_read else sample


def _unpack(archive: zipfile.ZipFile, name: str, file: BinaryIO) -> Any:
    """Return the value of one file of an archive, or the DataError that says why there is none.

    Zstandard, which `zipfile` cannot read, follows a header of 30 bytes, the file's name and an
    extra field (APPNOTE 6.3.10, 4.3.7).
    """
    import zstandard

    entry, most = archive.getinfo(name), 4 * LINE
    try:
        if entry.compress_type != 93:
            with archive.open(entry) as plain:
                return _load(plain.read(most + 1), most)
        file.seek(entry.header_offset + 26)
        sizes = [int.from_bytes(file.read(2), "little") for _ in range(2)]
        file.seek(sum(sizes), 1)
        with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as stream:
            return _load(stream.read(most + 1), most)
    except (
        OSError,
        EOFError,
        ValueError,
        zlib.error,
        zipfile.BadZipFile,
        zstandard.ZstdError,
    ) as e:
        return DataError(f"cannot be unpacked: {e}")
