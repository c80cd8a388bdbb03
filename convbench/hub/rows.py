"""Raw rows of a question set, from the Hub or from local files, read one after another whatever the
size of the file.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import DataError, HubError, SpecError
from convbench.hub.client import ask, offline, quietly, translating
from convbench.regular import open_to_read
from convbench.schema.task import Source

BATCH = 64
"""Rows that are converted at a time."""
BATCH_BYTES = 256 << 20
"""Most bytes of these rows in the file's own form."""
CELL = 4 << 20
"""Most bytes of one text."""
ITEMS = 100_000
"""Most values in one row."""
VALUES = 50_000_000
"""Most values of one column in one row group."""
ROWS = 10_000_000
"""Most rows of a source."""
TOTAL = 4 << 30
"""Most bytes of a file, unpacked, in the columns that are read."""
MANY = 1 << 16
"""Rows whose texts are measured at a time, without being converted."""
MEDIA = "[media]"
"""Stands for an image, audio or video that exists but is not loaded."""

Row = dict[str, Any]
Columns = Collection[str] | None
Part = Callable[[Columns], Iterator[Row]]
"""Yields the rows of a split, with these columns only (or all), if the format allows it."""


class Rows:
    """The rows of a source, read again each time they are iterated; each has its `_split`."""

    def __init__(self, parts: Iterable[tuple[str, Part]], columns: Columns = None) -> None:
        self.parts = tuple(parts)
        self.columns = columns
        self.count = 0
        """Rows that the last iteration yielded."""

    def only(self, columns: Columns) -> Rows:
        """Return the same rows with these columns only, if the format allows it."""
        return Rows(self.parts, columns)

    def __iter__(self) -> Iterator[Row]:
        self.count, total = 0, 0
        for split, part in self.parts:
            for row in part(self.columns):
                self.count += 1
                if self.count > ROWS:
                    raise DataError(f"found more than {ROWS:,} rows; expected fewer")
                total += weight(row, f"row {self.count} ({split})")
                if total > TOTAL:
                    raise DataError(f"found rows of more than {TOTAL:,} bytes; expected less")
                yield {**row, "_split": split}


def weight(value: Any, where: str) -> int:
    """Return the approximate bytes of a row. Raises DataError for a text or a row that is too
    large."""
    todo, items, total = [value], 0, 0
    while todo:
        found = todo.pop()
        items += 1
        if items > ITEMS:
            raise DataError(f"{where}: found more than {ITEMS:,} values; expected fewer")
        if isinstance(found, str | bytes):
            total += len(found)
            if len(found) > CELL:
                raise DataError(
                    f"{where}: found a text of {len(found):,} bytes; expected at most {CELL:,}"
                )
        elif isinstance(found, dict):
            todo += found.values()
        elif isinstance(found, list | tuple):
            todo += found
        total += 64
    return total


def parquet(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a parquet file. Raises DataError if it cannot be read."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _bounded(path, file.metadata)
            leaves = [file.schema.column(i).path for i in range(len(file.schema))]
            schema = file.schema_arrow
        wanted = _wanted(schema, columns)
        media = [name for name in wanted if is_media(schema.field(name).type)]
        read = [f"{name}.path" if name in media else name for name in wanted]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=leaves) as file:
            _unpacked(path, file.iter_batches(batch_size=MANY, columns=read, use_threads=False))
        with pyarrow.parquet.ParquetFile(path, read_dictionary=leaves) as file:
            for batch in file.iter_batches(batch_size=BATCH, columns=read, use_threads=False):
                yield from _made(str(path), batch, media, schema.names)
    except MemoryError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        line = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not a parquet file that can be read: {line}") from None


def arrow(what: str, table: Any, columns: Columns) -> Iterator[Row]:
    """Yield the rows of an Arrow table in a mapped file."""
    wanted = _wanted(table.schema, columns)
    media = [name for name in wanted if is_media(table.schema.field(name).type)]
    for batch in table.select(wanted).to_batches(max_chunksize=BATCH):
        yield from _made(what, batch, media, table.schema.names)


def is_media(kind: Any) -> bool:
    """Return whether a column's Arrow type is how `datasets` stores media: {bytes, path}."""
    import pyarrow

    if not pyarrow.types.is_struct(kind):
        return False
    names = {kind.field(index).name for index in range(kind.num_fields)}
    return names == {"bytes", "path"}


def _wanted(schema: Any, columns: Columns) -> list[str]:
    """Return the columns to read, at least one, which shows how many rows there are."""
    names = list(schema.names)
    return names if columns is None else [n for n in names if n in columns] or names[:1]


def _bounded(path: Path, metadata: Any) -> None:
    """Raise DataError for more rows, or values of a column in a row group, than any question set
    has."""
    if metadata.num_rows > ROWS:
        raise DataError(f"{path}: found {metadata.num_rows:,} rows; expected at most {ROWS:,}")
    for group in range(metadata.num_row_groups):
        found = metadata.row_group(group)
        for index in range(found.num_columns):
            count = found.column(index).num_values
            if count > VALUES:
                name = found.column(index).path_in_schema
                raise DataError(
                    f"{path}: {name}: found {count:,} values in one group of rows; expected at "
                    f"most {VALUES:,}"
                )


def _unpacked(path: Path, batches: Iterable[Any]) -> None:
    """Raise DataError if a file is too large once each row has its own copy of its texts."""
    total = 0
    for batch in batches:
        total += sum(_size(column) for column in batch.columns)
        if total > TOTAL:
            raise DataError(
                f"{path}: stands for more than {TOTAL:,} bytes, unpacked; expected less: a file "
                "with fewer rows, or without the columns that no question needs"
            )


def _size(column: Any) -> int:
    """Return the bytes of a column with every repeated text written out."""
    import pyarrow
    import pyarrow.compute

    kind = column.type
    if pyarrow.types.is_dictionary(kind) and not pyarrow.types.is_nested(kind.value_type):
        lengths = pyarrow.compute.binary_length(column.dictionary)
        said = pyarrow.compute.sum(lengths.cast(pyarrow.int64()).take(column.indices)).as_py()
        return int(said or 0)
    if pyarrow.types.is_struct(kind):
        return sum(_size(column.field(i)) for i in range(kind.num_fields))
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return _size(column.flatten())
    return int(column.nbytes)


def _made(what: str, batch: Any, media: Collection[str], names: Iterable[str]) -> Iterator[Row]:
    """Yield the rows of a batch: `[media]` or None for media, None for columns that were not
    read."""
    import pyarrow

    for name in media:
        there = batch.column(name).is_valid()
        flags = pyarrow.array([MEDIA if yes else None for yes in there.to_pylist()])
        batch = batch.set_column(batch.schema.get_field_index(name), name, flags)
    for column, name in zip(batch.columns, batch.schema.names, strict=True):
        size = max(_longest(column), column.nbytes - BATCH_BYTES)
        if size > CELL:
            raise DataError(
                f"{what}: {name}: found values of more than {CELL:,} bytes; expected less"
            )
    others = dict.fromkeys(names)
    for row in batch.to_pylist():
        yield {**others, **row}


def _longest(column: Any) -> int:
    """Return the bytes of the longest text in a dictionary-encoded column."""
    import pyarrow
    import pyarrow.compute

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        texts = column.dictionary
        if pyarrow.types.is_nested(texts.type) or not len(texts):
            return 0
        return pyarrow.compute.max(pyarrow.compute.binary_length(texts)).as_py() or 0
    if pyarrow.types.is_struct(kind):
        return max((_longest(column.field(i)) for i in range(kind.num_fields)), default=0)
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return _longest(column.flatten())
    return 0


KINDS = (".parquet", ".jsonl", ".json", ".csv")
SPLITS = ("train", "validation", "valid", "dev", "test")
"""File names that name a split."""
WHOLE = 512 << 20
"""Most bytes of a JSON file that is one list, which is read at once."""
LINE = 16 << 20
"""Most bytes of one line."""


def read_files(place: str) -> tuple[dict[str, Part], str]:
    """Return (readers of the rows, by split; `sha256:…` of the contents) of a file or a folder of
    files.

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
    """Add a split's file. Raises DataError if the split has another one."""
    other = files.setdefault(file.stem, file)
    if other != file:
        raise DataError(
            f"{file.parent}: found {other.name} and {file.name}; expected one file for split "
            f"{file.stem}; join them, or name one: --set task.source.file={file}"
        )


def read_json(data: bytes | str, where: str) -> Any:
    """Return the value of JSON from a stranger. Raises DataError for invalid JSON, and for a key
    that an object has twice, since readers would silently take one of them. A byte order mark, with
    which some programs begin a file, is skipped."""
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
    """One object has a key twice."""


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
    """Yield the rows of a CSV file. Every value is a text; an empty one stays empty."""
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
    """Yield the rows of JSON lines, or of one JSON list of objects."""
    with path.open("rb") as file:
        mark = file.read(len(codecs.BOM_UTF8))
        file.seek(len(mark) if mark == codecs.BOM_UTF8 else 0)
        while (first := file.read(1)).isspace():
            pass
        file.seek(0)
        if first == b"[":
            data = file.read(WHOLE + 1)
            if len(data) > WHOLE:
                raise DataError(
                    f"{path}: found a list of more than {WHOLE:,} bytes; "
                    "expected JSON lines, one object a line"
                )
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


USUAL = ("train", "validation", "dev", "test")
"""Splits that come first, in this order; others follow by name."""
LOCAL = "--set task.source.hub=null --set task.source.file=PATH"
"""How a local copy replaces a Hub repository."""
COMMIT = re.compile(r"[0-9a-f]{40}")


def load_rows(source: Source) -> tuple[list[dict[str, Any]], str]:
    """Return (all rows, revision) of a source on the Hub or in a file; see `open_rows`."""
    rows, revision = open_rows(source)
    return list(rows), revision


def open_rows(source: Source) -> tuple[Rows, str]:
    """Return (rows, revision) of a source on the Hub or in a file, read when they are iterated.

    Each row is a dict of its columns and `_split`, the split it came from. The order is: splits
    train, validation, dev, test, then others by name; rows as they stand in each. An image, audio
    or video is not decoded: it stands as `[media]`, or None. `revision` is the commit on the Hub,
    or `sha256:…` of the local files.

    Raises HubError (unreachable, refused, no such repository, configuration or split) or
    DataError (no such file, unreadable).
    """
    if source.file is not None:
        parts, revision = read_files(source.file)
        return pooled(parts, source.splits, source.file, DataError), revision
    if source.hub is None:
        raise SpecError("source: found neither hub nor file; rows made by a function are not read")
    return _from_hub(source.hub, source)


def _from_hub(repo: str, source: Source) -> tuple[Rows, str]:
    what = f"dataset {repo}"
    with quietly(), translating(what, way_out=f", or use a local copy: {LOCAL}"):
        import datasets

        found = ask(repo, source.revision)
        try:
            with offline(found.unreachable is not None):
                splits = datasets.load_dataset(repo, name=source.config, revision=source.revision)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            cause = found.refused or found.unreachable
            if cause is None and isinstance(error, ValueError):  # no such configuration
                raise HubError(f"{what}: {_value_line(error)}") from error
            if cause is None:
                raise
            raise cause from error
        parts = {
            str(split): partial(arrow, f"{what}, {split}", table.data.table)
            for split, table in splits.items()
        }
        revision = _loaded_commit(splits) or found.commit or "unknown"
    if COMMIT.fullmatch(source.revision or "") and revision != source.revision:
        raise HubError(
            f"{what}: the Hub cannot be reached, and the cache holds commit {revision}; expected "
            f"{source.revision}. Go online once, or take what is there: --set "
            f"task.source.revision={revision}"
        )
    return pooled(parts, source.splits, what, HubError), revision


def _loaded_commit(splits: Any) -> str | None:
    """Return the commit that was loaded, which names its folder in the cache, or None."""
    for dataset in splits.values():
        for file in dataset.cache_files:
            if COMMIT.fullmatch(Path(file["filename"]).parent.name):
                return Path(file["filename"]).parent.name
    return None


def _value_line(error: ValueError) -> str:
    """Return one line for a ValueError of load_dataset: mostly a missing configuration."""
    text = " ".join(str(error).split()).partition(" Example of usage")[0]
    return f"{text[:400].rstrip('.')}; choose one: --set task.source.config=NAME"


def pooled(
    parts: Mapping[str, Part],
    wanted: Iterable[str],
    what: str,
    error: type[HubError] | type[DataError],
) -> Rows:
    """Return the rows of these splits (all if none is named), each with `_split`. Raises `error`
    for a missing one."""
    names = sorted(parts, key=_order)
    missing = [name for name in wanted if name not in parts]
    if missing:
        raise error(
            f"{what}: found no split {missing[0]!r}; there is: {', '.join(names)}; "
            f"choose among them, e.g. --set task.source.splits=[{names[0] if names else 'train'}]"
        )
    chosen = [name for name in names if name in set(wanted) or not tuple(wanted)]
    return Rows((name, parts[name]) for name in chosen)


def _order(split: str) -> tuple[int, str]:
    return (USUAL.index(split) if split in USUAL else len(USUAL), split)
