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
from convbench.schema.task import Source
from convbench.sources.client import dataset_status, offline_mode, quiet_clients, translate_errors
from convbench.util.regular import open_to_read

BATCH_ROWS = 64
"""Rows that are converted at a time."""
BATCH_BYTES = 256 << 20
"""Most bytes of these rows in the file's own form."""
TEXT_BYTES = 4 << 20
"""Most bytes of one text."""
ROW_VALUES = 100_000
"""Most values in one row."""
COLUMN_VALUES = 50_000_000
"""Most values of one column in one row group."""
MOST_ROWS = 10_000_000
"""Most rows of a source."""
UNPACKED_BYTES = 4 << 30
"""Most bytes of a file, unpacked, in the columns that are read."""
MEASURED_ROWS = 1 << 16
"""Rows whose texts are measured at a time, without being converted."""
MEDIA_MARK = "[media]"
"""Stands for an image, audio or video that exists but is not loaded."""

Row = dict[str, Any]
Columns = Collection[str] | None
Part = Callable[[Columns], Iterator[Row]]
"""Yields the rows of a split, with these columns only (or all), if the format allows it."""


class SourceRows:
    """The rows of a source, read again each time they are iterated; each has its `_split`."""

    def __init__(self, parts: Iterable[tuple[str, Part]], columns: Columns = None) -> None:
        self.parts = tuple(parts)
        self.columns = columns
        self.count = 0
        """Rows that the last iteration yielded."""

    def select_columns(self, columns: Columns) -> SourceRows:
        """Return a new object with the same rows; its parquet and Hub rows hold None in other
        columns.

        With None all columns are read. If a split has none of them, its first column is read
        instead. CSV and JSON rows have all columns either way.
        """
        return SourceRows(self.parts, columns)

    def __iter__(self) -> Iterator[Row]:
        self.count, total = 0, 0
        for split, part in self.parts:
            for row in part(self.columns):
                self.count += 1
                if self.count > MOST_ROWS:
                    raise DataError(f"found more than {MOST_ROWS:,} rows; expected fewer")
                total += row_bytes(row, f"row {self.count} ({split})")
                if total > UNPACKED_BYTES:
                    raise DataError(
                        f"found rows of more than {UNPACKED_BYTES:,} bytes; expected less"
                    )
                yield {**row, "_split": split}


def row_bytes(value: Any, where: str) -> int:
    """Return the approximate bytes of a row: 64 for each value, nested ones included, and its
    texts.

    A text counts by its characters; keys count nothing. Raise DataError, whose message begins with
    `where`, for more than 100,000 values or a text of more than 4 MiB.
    """
    todo, items, total = [value], 0, 0
    while todo:
        element = todo.pop()
        items += 1
        if items > ROW_VALUES:
            raise DataError(f"{where}: found more than {ROW_VALUES:,} values; expected fewer")
        if isinstance(element, str | bytes):
            total += len(element)
            if len(element) > TEXT_BYTES:
                raise DataError(
                    f"{where}: found a text of {len(element):,} bytes; expected at most "
                    f"{TEXT_BYTES:,}"
                )
        elif isinstance(element, dict):
            todo += element.values()
        elif isinstance(element, list | tuple):
            todo += element
        total += 64
    return total


def parquet_rows(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a parquet file as dicts with all of its columns, None in those not in
    `columns`.

    If it has none of `columns`, its first column is read instead; with None all are. An image,
    audio or video is `[media]`, or None if it is missing. Raise DataError if the file cannot be
    read, or a text, a column or the unpacked file is too large.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_metadata(path, file.metadata)
            leaves = [file.schema.column(i).path for i in range(len(file.schema))]
            schema = file.schema_arrow
        names = _columns_to_read(schema, columns)
        media = [name for name in names if is_media(schema.field(name).type)]
        read = [f"{name}.path" if name in media else name for name in names]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=leaves) as file:
            _check_unpacked(
                path, file.iter_batches(batch_size=MEASURED_ROWS, columns=read, use_threads=False)
            )
        with pyarrow.parquet.ParquetFile(path, read_dictionary=leaves) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=read, use_threads=False):
                yield from _batch_rows(str(path), batch, media, schema.names)
    except MemoryError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        line = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not a parquet file that can be read: {line}") from None


def arrow_rows(what: str, table: Any, columns: Columns) -> Iterator[Row]:
    """Yield the rows of an Arrow table as dicts with all of its columns, None in those not in
    `columns`.

    If it has none of `columns`, its first column is read instead; with None all are. An image,
    audio or video is `[media]`, or None if it is missing. Raise DataError, whose message begins
    with `what`, for values that are too large.
    """
    names = _columns_to_read(table.schema, columns)
    media = [name for name in names if is_media(table.schema.field(name).type)]
    for batch in table.select(names).to_batches(max_chunksize=BATCH_ROWS):
        yield from _batch_rows(what, batch, media, table.schema.names)


def is_media(kind: Any) -> bool:
    """Return True if an Arrow type is a struct with exactly the fields `bytes` and `path`.

    That is how `datasets` stores images, audio and video.
    """
    import pyarrow

    if not pyarrow.types.is_struct(kind):
        return False
    names = {kind.field(index).name for index in range(kind.num_fields)}
    return names == {"bytes", "path"}


def _columns_to_read(schema: Any, columns: Columns) -> list[str]:
    """Return the columns to read, at least one, which shows how many rows there are."""
    names = list(schema.names)
    return names if columns is None else [n for n in names if n in columns] or names[:1]


def _check_metadata(path: Path, metadata: Any) -> None:
    """Raise DataError for more rows, or values of a column in a row group, than any question set
    has."""
    if metadata.num_rows > MOST_ROWS:
        raise DataError(f"{path}: found {metadata.num_rows:,} rows; expected at most {MOST_ROWS:,}")
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            count = row_group.column(index).num_values
            if count > COLUMN_VALUES:
                name = row_group.column(index).path_in_schema
                raise DataError(
                    f"{path}: {name}: found {count:,} values in one group of rows; expected at "
                    f"most {COLUMN_VALUES:,}"
                )


def _check_unpacked(path: Path, batches: Iterable[Any]) -> None:
    """Raise DataError if a file is too large once each row has its own copy of its texts."""
    total = 0
    for batch in batches:
        total += sum(_column_bytes(column) for column in batch.columns)
        if total > UNPACKED_BYTES:
            raise DataError(
                f"{path}: unpacks to more than {UNPACKED_BYTES:,} bytes; expected less: a file "
                "with fewer rows, or without the columns that no question needs"
            )


def _column_bytes(column: Any) -> int:
    """Return the bytes of a column with every repeated text written out."""
    import pyarrow
    import pyarrow.compute

    kind = column.type
    if pyarrow.types.is_dictionary(kind) and not pyarrow.types.is_nested(kind.value_type):
        lengths = pyarrow.compute.binary_length(column.dictionary)
        total = pyarrow.compute.sum(lengths.cast(pyarrow.int64()).take(column.indices)).as_py()
        return int(total or 0)
    if pyarrow.types.is_struct(kind):
        return sum(_column_bytes(column.field(i)) for i in range(kind.num_fields))
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return _column_bytes(column.flatten())
    return int(column.nbytes)


def _batch_rows(
    what: str, batch: Any, media: Collection[str], names: Iterable[str]
) -> Iterator[Row]:
    """Yield the rows of a batch: `[media]` or None for media, None for columns that were not
    read."""
    import pyarrow

    for name in media:
        valid = batch.column(name).is_valid()
        flags = pyarrow.array([MEDIA_MARK if yes else None for yes in valid.to_pylist()])
        batch = batch.set_column(batch.schema.get_field_index(name), name, flags)
    for column, name in zip(batch.columns, batch.schema.names, strict=True):
        size = max(_longest_text(column), column.nbytes - BATCH_BYTES)
        if size > TEXT_BYTES:
            raise DataError(
                f"{what}: {name}: found values of more than {TEXT_BYTES:,} bytes; expected less"
            )
    others = dict.fromkeys(names)
    for row in batch.to_pylist():
        yield {**others, **row}


def _longest_text(column: Any) -> int:
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
        return max((_longest_text(column.field(i)) for i in range(kind.num_fields)), default=0)
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return _longest_text(column.flatten())
    return 0


FILE_TYPES = (".parquet", ".jsonl", ".json", ".csv")
SPLIT_NAMES = ("train", "validation", "valid", "dev", "test")
"""File names that name a split."""
LIST_BYTES = 512 << 20
"""Most bytes of a JSON file that is one list, which is read at once."""
LINE_BYTES = 16 << 20
"""Most bytes of one line."""


def read_files(location: str) -> tuple[dict[str, Part], str]:
    """Return ({split: function that yields its rows}, `sha256:…` of names and contents) of a file
    or folder.

    In a folder each .parquet, .jsonl, .json or .csv file is a split with the file's name. A single
    file is the split that it is named after (`test.parquet`), else `train`. Raise DataError for no
    such file, none in the folder, or two of one split; what a file holds is checked when its rows
    are read.
    """
    path = Path(location).expanduser()
    if path.is_dir():
        files: dict[str, Path] = {}
        for file in sorted(path.iterdir()):
            if file.suffix in FILE_TYPES:
                _take_split(files, file)
        if not files:
            raise DataError(f"{location}: found no SPLIT.parquet, .jsonl or .csv in this folder")
    elif path.is_file():
        files = {path.stem if path.stem in SPLIT_NAMES else "train": path}
    else:
        raise DataError(
            f"{location}: found no such file or folder; name one: --set task.source.file=PATH"
        )
    return {split: partial(_read_rows, file) for split, file in files.items()}, _hash_files(files)


def _take_split(files: dict[str, Path], file: Path) -> None:
    """Add a split's file. Raises DataError if the split has another one."""
    other = files.setdefault(file.stem, file)
    if other != file:
        raise DataError(
            f"{file.parent}: found {other.name} and {file.name}; expected one file for split "
            f"{file.stem}; join them, or name one: --set task.source.file={file}"
        )


def read_json(data: bytes | str, where: str) -> Any:
    """Return the value of untrusted JSON of any kind, parsed strictly; a byte order mark is
    skipped.

    Raise DataError, whose message begins with `where`, for invalid JSON, for nesting that is too
    deep, and for a key that an object has twice, since readers would silently take one of them.
    """
    if isinstance(data, bytes):
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        value = orjson.loads(data)
        json.loads(data, object_pairs_hook=_unique_keys)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error}; expected one object a line") from None
    except _DuplicateKey as error:
        key = str(error)[:60]
        raise DataError(f"{where}: found the key {key!r} twice; expected one") from None
    except RecursionError:
        raise DataError(f"{where}: found values nested too deeply; expected fewer levels") from None
    return value


class _DuplicateKey(Exception):
    """One object has a key twice."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _DuplicateKey(max(counts, key=counts.__getitem__))
    return record


def _hash_files(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for split, path in sorted(files.items()):
        try:
            with open_to_read(path) as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
        digest.update(split.encode() + b"\0" + content)
    return f"sha256:{digest.hexdigest()}"


def _read_rows(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of one file. Raises DataError naming file and line."""
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".json": _json_rows}
    try:
        if path.suffix == ".parquet":
            yield from parquet_rows(path, columns)
        elif path.suffix in readers:
            yield from readers[path.suffix](path)
        else:
            kinds = ", ".join(FILE_TYPES)
            raise DataError(f"{path}: found {path.suffix or 'no'} file type; expected {kinds}")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: found bytes that are not UTF-8; expected UTF-8 text") from None


def _csv_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file. Every value is a text; an empty one stays empty."""
    before = csv.field_size_limit(TEXT_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            reader = csv.DictReader(file, strict=True)
            _unique_keys([(name, None) for name in reader.fieldnames or ()])
            for row in reader:
                yield dict(row)
        except _DuplicateKey as error:
            raise DataError(
                f"{path}:1: found two columns {str(error)[:60]!r}; expected one"
            ) from None
        except csv.Error as error:
            raise DataError(f"{path}: not a CSV file: {error}") from None
        finally:
            csv.field_size_limit(before)


def _json_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of JSON lines, or of one JSON list of objects."""
    with path.open("rb") as file:
        mark = file.read(len(codecs.BOM_UTF8))
        file.seek(len(mark) if mark == codecs.BOM_UTF8 else 0)
        while (first := file.read(1)).isspace():
            pass
        file.seek(0)
        if first == b"[":
            data = file.read(LIST_BYTES + 1)
            if len(data) > LIST_BYTES:
                raise DataError(
                    f"{path}: found a list of more than {LIST_BYTES:,} bytes; "
                    "expected JSON lines, one object a line"
                )
            yield from _iter_objects(f"{path}:1", data, is_list=True)
            return
        number = 0
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                raise DataError(f"{path}:{number}: found a line of more than {LINE_BYTES:,} bytes")
            if line.strip():
                yield from _iter_objects(f"{path}:{number}", line, is_list=False)


def _iter_objects(where: str, data: bytes, *, is_list: bool) -> Iterator[Row]:
    value = read_json(data, where)
    for row in value if is_list else [value]:
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected JSON objects, one per row")
        yield row


SPLIT_ORDER = ("train", "validation", "dev", "test")
"""Splits that come first, in this order; others follow by name."""
LOCAL_COPY_ADVICE = "--set task.source.hub=null --set task.source.file=PATH"
"""How a local copy replaces a Hub repository."""
COMMIT_HASH = re.compile(r"[0-9a-f]{40}")


def load_rows(source: Source) -> tuple[list[dict[str, Any]], str]:
    """Return (list of all rows, revision) of a source on the Hub or in a file.

    Rows, order, revision and errors are those of `open_rows`; all rows are held in memory.
    """
    rows, revision = open_rows(source)
    return list(rows), revision


def open_rows(source: Source) -> tuple[SourceRows, str]:
    """Return (rows, revision) of a source on the Hub or in a file; rows are read when iterated.

    A row is a dict of its columns and `_split`. Splits come in the order train, validation, dev,
    test, then by name. An image, audio or video is `[media]` or None. `revision` is the Hub's
    commit or `sha256:…` of the files. Raise HubError if the Hub refuses or lacks it, DataError for
    a missing file or split, or (on iteration) unreadable rows, SpecError if the source names
    neither.
    """
    if source.file is not None:
        parts, revision = read_files(source.file)
        return pool_splits(parts, source.splits, source.file, DataError), revision
    if source.hub is None:
        raise SpecError("source: found neither hub nor file; rows made by a function are not read")
    return _from_hub(source.hub, source)


def _from_hub(repo: str, source: Source) -> tuple[SourceRows, str]:
    what = f"dataset {repo}"
    with (
        quiet_clients(),
        translate_errors(what, way_out=f", or use a local copy: {LOCAL_COPY_ADVICE}"),
    ):
        import datasets

        status = dataset_status(repo, source.revision)
        try:
            with offline_mode(status.unreachable is not None):
                splits = datasets.load_dataset(repo, name=source.config, revision=source.revision)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            cause = status.refused or status.unreachable
            if cause is None and isinstance(error, ValueError):  # no such configuration
                raise HubError(f"{what}: {_value_line(error)}") from error
            if cause is None:
                raise
            raise cause from error
        parts = {
            str(split): partial(arrow_rows, f"{what}, {split}", table.data.table)
            for split, table in splits.items()
        }
        revision = _loaded_commit(splits) or status.commit or "unknown"
    if COMMIT_HASH.fullmatch(source.revision or "") and revision != source.revision:
        raise HubError(
            f"{what}: the Hub cannot be reached, and the cache holds commit {revision}; expected "
            f"{source.revision}. Go online once, or take what is there: --set "
            f"task.source.revision={revision}"
        )
    return pool_splits(parts, source.splits, what, HubError), revision


def _loaded_commit(splits: Any) -> str | None:
    """Return the commit that was loaded, which names its folder in the cache, or None."""
    for dataset in splits.values():
        for file in dataset.cache_files:
            if COMMIT_HASH.fullmatch(Path(file["filename"]).parent.name):
                return Path(file["filename"]).parent.name
    return None


def _value_line(error: ValueError) -> str:
    """Return one line for a ValueError of load_dataset: mostly a missing configuration."""
    text = " ".join(str(error).split()).partition(" Example of usage")[0]
    return f"{text[:400].rstrip('.')}; choose one: --set task.source.config=NAME"


def pool_splits(
    parts: Mapping[str, Part],
    splits: Iterable[str],
    what: str,
    error: type[HubError] | type[DataError],
) -> SourceRows:
    """Return the rows of the named splits, all if none is named, each row with its `_split`.

    They come in the order train, validation, dev, test, then others by name, not in that of
    `splits`. Raise `error` for a split that is not in `parts`.
    """
    names = sorted(parts, key=_split_order)
    missing = [name for name in splits if name not in parts]
    if missing:
        raise error(
            f"{what}: found no split {missing[0]!r}; there is: {', '.join(names)}; "
            f"choose among them, e.g. --set task.source.splits=[{names[0] if names else 'train'}]"
        )
    chosen = [name for name in names if name in set(splits) or not tuple(splits)]
    return SourceRows((name, parts[name]) for name in chosen)


def _split_order(split: str) -> tuple[int, str]:
    return (SPLIT_ORDER.index(split) if split in SPLIT_ORDER else len(SPLIT_ORDER), split)
