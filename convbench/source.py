"""Every file of rows of logs: JSON lines, JSON, CSV, parquet and Inspect's
archives, each also gzipped or compressed with Zstandard, alone, in a folder, by a pattern, or on
the Hub as `hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]`.

What a file is is seen in its first bytes, not in its name. A row that cannot be read is yielded as
the DataError that says why, in its place among the others: one odd row never refuses a file.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from convbench.errors import DataError, HubError
from convbench.sources.client import quiet_clients, translate_errors
from convbench.util.regular import open_to_read

HUB = "hf://"
LINE = 64 << 20
"""Most bytes of one record."""
WHOLE = 1 << 30
"""Most bytes of a file that is one JSON value, and of all files of an archive, unpacked."""
SKIPPED = (".md", ".txt", ".py", ".yaml", ".yml", ".toml", ".html", ".png", ".jpg", ".pdf", ".lock")
"""Endings of files of a folder that hold no rows."""
SPLIT = re.compile(
    r"(?i)((?:train|training|test|validation|valid|val|dev|eval)(?:_[a-z]+)?)(?:-\d+(?:-of-\d+)?)?\."
)
"""The name of a file of a split, of one of its shards too."""
LONE = re.compile("[\ud800-\udfff]")
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

    def rows(self) -> Iterator[Row]:
        """Yield its rows in order; a file that is one JSON value is one row. Raise DataError if it
        cannot be opened."""
        try:
            with open_to_read(self.path) as file:
                yield from _rows(self.name, cast("BinaryIO", file), self.path)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise DataError(f"{self.name}: cannot be read: {why}") from None


def normal_split(name: str | None) -> str | None:
    """Return train, validation or test by the first word of a split's name; None for another."""
    word = re.split(r"[^a-z]", (name or "").lower(), maxsplit=1)[0]
    if word in ("validation", "valid", "val", "dev", "eval"):
        return "validation"
    return {"training": "train"}.get(word, word) if word in ("train", "training", "test") else None


def open_source(source: str) -> tuple[list[File], str]:
    """Return (the files of a source, what identifies their content: `sha256:…` or a commit).

    Raise DataError if there are none, HubError if the Hub refuses.
    """
    if source.startswith(HUB):
        return _hub_files(source)
    path = Path(source).expanduser()
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and _is_data(p.relative_to(path)))
        files = [File(str(p), p, _split_of(p)) for p in found]
    elif path.is_file():
        files = [File(source, path)]
    else:
        files = [File(name, Path(name)) for name in sorted(glob.glob(str(path), recursive=True))]
    if not files:
        raise DataError(
            f"{source}: found no such file; expected a file, a folder or hf://OWNER/NAME of JSON "
            "lines, JSON, CSV, parquet or logs"
        )
    return files, _digest(files)


def _is_data(path: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and path.suffix.lower() not in SKIPPED


def _split_of(path: Path) -> str | None:
    match = SPLIT.match(path.name)
    return match[1] if match else None


def _digest(files: Iterable[File]) -> str:
    digest = hashlib.sha256()
    for file in files:
        try:
            with open_to_read(file.path) as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"{file.name}: cannot be read: {error.strerror or error}") from None
    return f"sha256:{digest.hexdigest()}"


def _hub_files(source: str) -> tuple[list[File], str]:
    match = re.fullmatch(
        r"hf://([\w.-]+/[\w.-]+)(?::([\w.-]+))?(?:/([\w.-]+))?(?:@([\w./-]+))?", source
    )
    if match is None:
        raise DataError(f"{source}: expected hf://OWNER/NAME[:CONFIG][/SPLIT][@REVISION]")
    repo, config, split, revision = match.groups()
    with quiet_clients(), translate_errors(f"dataset {repo}"):
        import datasets
        from huggingface_hub import HfApi, hf_hub_download

        commit = HfApi().dataset_info(repo, revision=revision).sha or revision or "main"
        try:
            builder = datasets.load_dataset_builder(repo, name=config, revision=commit)
        except ValueError as error:
            names = datasets.get_dataset_config_names(repo, revision=commit)
            raise HubError(
                f"dataset {repo}: found configs {', '.join(names)}; name one: "
                f"{HUB}{repo}:{names[0]}"
                if len(names) > 1
                else f"dataset {repo}: {' '.join(str(error).split())[:200]}"
            ) from None
        parts: dict[str, list[str]] = {
            str(name): [str(path) for path in paths]
            for name, paths in (builder.config.data_files or {}).items()
        }
        if split is not None and split not in parts:
            raise HubError(
                f"dataset {repo}: found no split {split!r}; expected one of {', '.join(parts)}"
            )
        files = []
        for name in [split] if split else sorted(parts, key=_split_order):
            for path in parts[name]:
                inside = path.partition(f"@{commit}/")[2]
                local = hf_hub_download(repo, inside, repo_type="dataset", revision=commit)
                files.append(File(f"{HUB}{repo}/{inside}", Path(local), name))
    return files, commit


def _split_order(name: str) -> tuple[int, str]:
    order = ("train", "validation", "dev", "test")
    return (order.index(name) if name in order else len(order), name)


def _rows(name: str, file: BinaryIO, path: Path) -> Iterator[Row]:
    """Yield the rows of a file by its first bytes."""
    head = file.read(4)
    file.seek(0)
    if head[:2] == b"\x1f\x8b":
        with gzip.open(file) as inner:
            yield from _rows_of_text(name, cast("BinaryIO", inner), path)
    elif head == b"\x28\xb5\x2f\xfd":
        import pyarrow

        with pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd") as inner:
            yield from _rows_of_text(name, io.BytesIO(inner.read(WHOLE)), path)
    elif head == b"PAR1":
        yield from _parquet_rows(name, path)
    elif head == b"PK\x03\x04":
        yield from _archive_rows(name, path)
    else:
        yield from _rows_of_text(name, file, path)


def _rows_of_text(name: str, file: BinaryIO, path: Path) -> Iterator[Row]:
    ending = Path(path.name.removesuffix(".gz").removesuffix(".zst")).suffix.lower()
    if ending in (".csv", ".tsv"):
        yield from _csv_rows(name, file)
    else:
        yield from _json_rows(name, file)


def _json_rows(name: str, file: BinaryIO) -> Iterator[Row]:
    """Yield the values of JSON lines, or the one value of a JSON file. It is the latter if its
    first line alone is no value, or there is no other line."""
    lines = enumerate(iter(lambda: file.readline(LINE + 1), b""), 1)
    first = next(((number, line) for number, line in lines if line.strip()), None)
    if first is None:
        return
    number, line = first
    value = _load(line.removeprefix(codecs.BOM_UTF8))
    if isinstance(value, DataError) and line.lstrip(codecs.BOM_UTF8 + b" \t")[:1] in (b"[", b"{"):
        rest = file.read(WHOLE)
        whole = _load((line + rest).removeprefix(codecs.BOM_UTF8))
        if not isinstance(whole, DataError):
            yield name, whole
            return
        lines = enumerate(io.BytesIO(rest), number + 1)
    yield f"{name}:{number}", value
    for number, line in lines:
        if line.strip():
            yield f"{name}:{number}", _load(line)


def _load(data: bytes) -> Any:
    """Return a JSON value, or the DataError that says why there is none. Half a character becomes
    the replacement character; a number that is none, which Python's own writer writes, null."""
    if len(data) > WHOLE or (len(data) > LINE and data.endswith(b"\n") and data.count(b"\n") == 1):
        return DataError(f"a record of more than {LINE >> 20} MiB")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        text = data.decode("utf-8", "replace")
        return _mended(json.loads(text, parse_constant=lambda _: None))
    except (ValueError, RecursionError):
        return DataError("not JSON")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return LONE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def _csv_rows(name: str, file: BinaryIO) -> Iterator[Row]:
    """Yield the rows of a table whose first line names the columns, separated by commas, tabs or
    semicolons."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    head = text.readline()
    sign = max(",\t;", key=head.count)
    before = csv.field_size_limit(LINE)
    try:
        names = next(csv.reader([head], delimiter=sign), [])
        twice = [column for column in names if names.count(column) > 1]
        if twice:
            raise DataError(f"{name}:1: found two columns {twice[0]!r}; expected one")
        reader = csv.reader(text, delimiter=sign)
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield f"{name}:{reader.line_num + 1}", DataError(f"no row of a table ({error})")
                continue
            where = f"{name}:{reader.line_num + 1}"
            if len(cells) > len(names):
                yield where, DataError(f"found {len(cells)} cells; expected {len(names)}")
            elif any(cells):
                yield where, {k: v for k, v in zip(names, cells, strict=False) if v != ""}
    finally:
        csv.field_size_limit(before)
        text.detach()


def _parquet_rows(name: str, path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64, use_threads=False):
                if batch.nbytes > WHOLE:
                    raise DataError(f"{name}: 64 rows have more than {WHOLE >> 30} GiB; refused")
                for row in batch.to_pylist():
                    number += 1
                    yield f"{name}:{number}", _without_media(row)
    except (pyarrow.ArrowException, ValueError) as error:
        why = " ".join(str(error).split())[:120]
        raise DataError(f"{name}: cannot be read as parquet: {why}") from None


def _without_media(value: Any) -> Any:
    """Return a value with pictures, sounds and other bytes as marks, and times as text."""
    if isinstance(value, dict):
        if value.keys() == {"bytes", "path"}:
            return {"type": "image"}
        return {key: _without_media(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_media(item) for item in value]
    if isinstance(value, bytes):
        return "[bytes]"
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _archive_rows(name: str, path: Path) -> Iterator[Row]:
    """Yield the JSON files of an archive of Inspect's, each as {"header": …, "sample": …}."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError(f"{name}: is no archive that can be read: {error}") from None
    with archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        heads = [n for n in ("header.json", "_journal/start.json") if n in entries]
        header = _load(_unpack(archive, path, entries[heads[0]])) if heads else {}
        left = WHOLE
        for entry in sorted(n for n in entries if re.fullmatch(r"samples/.+\.json", n)):
            try:
                data = _unpack(archive, path, entries[entry])
            except (DataError, OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError) as no:
                yield f"{name}: {entry}", DataError(f"cannot be unpacked: {no}")
                continue
            left -= len(data)
            if left < 0:
                raise DataError(f"{name}: unpacks to more than {WHOLE >> 30} GiB; refused")
            sample = _load(data)
            where = f"{name}: {entry}"
            yield (
                where,
                sample if isinstance(sample, DataError) else {"header": header, "sample": sample},
            )


def _unpack(archive: zipfile.ZipFile, path: Path, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of one file of an archive, also one that is compressed with Zstandard, which
    `zipfile` cannot read: it follows a header of 30 bytes, its name and an extra field (APPNOTE
    6.3.10, 4.3.7)."""
    most = 256 << 20
    if entry.compress_type != 93:
        with archive.open(entry) as file:
            data = file.read(most + 1)
    else:
        import pyarrow

        with open_to_read(path) as file:
            file.seek(entry.header_offset)
            head = file.read(30)
            file.seek(
                int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1
            )
            packed = file.read(min(entry.compress_size, most))
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "zstd") as stream:
            data = stream.read(most + 1)
    if len(data) > most:
        raise DataError(f"{entry.filename} has more than {most >> 20} MiB")
    return data
