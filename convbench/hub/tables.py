"""Rows one after another, whatever the size of the file they lie in.

A file of kilobytes can stand for gigabytes (one text said a million times, a list of a billion
numbers). Texts that repeat stay one text until their row is wanted, a few rows are made at a time,
of the columns asked for, and what no question needs to be is a DataError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from convbench.errors import DataError

BATCH = 64
"""Rows that are made at a time."""
BATCH_BYTES = 256 << 20
"""Bytes of these rows in the file's own form."""
CELL = 4 << 20
"""Bytes of one text."""
ITEMS = 100_000
"""Values within one row."""
VALUES = 50_000_000
"""Values of one column in one group of rows."""
ROWS = 10_000_000
"""Rows of a source."""
TOTAL = 4 << 30
"""Bytes that a file stands for, unpacked, in the columns that are read."""
MANY = 1 << 16
"""Rows whose texts are measured at a time, without being made."""
MEDIA = "[media]"
"""Stands for an image, audio or video that is there but not loaded."""

Row = dict[str, Any]
Columns = Collection[str] | None
Part = Callable[[Columns], Iterator[Row]]
"""Yields the rows of a split, with these columns (or all) where the form allows to leave some."""


class Rows:
    """The rows of a source, read anew each time they are iterated; each has its `_split`."""

    def __init__(self, parts: Iterable[tuple[str, Part]], columns: Columns = None) -> None:
        self.parts = tuple(parts)
        self.columns = columns
        self.count = 0
        """Rows that the last iteration gave."""

    def only(self, columns: Columns) -> Rows:
        """Return the same rows with these columns alone, as far as the form allows."""
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
    """Return about how many bytes a row takes. Raises DataError for a text or a row too large."""
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
    """Yield the rows of a parquet file."""
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
    """Yield the rows of an Arrow table that lies in a mapped file."""
    wanted = _wanted(table.schema, columns)
    media = [name for name in wanted if is_media(table.schema.field(name).type)]
    for batch in table.select(wanted).to_batches(max_chunksize=BATCH):
        yield from _made(what, batch, media, table.schema.names)


def is_media(kind: Any) -> bool:
    """Whether a column's Arrow type is how `datasets` stores media: {bytes, path}."""
    import pyarrow

    if not pyarrow.types.is_struct(kind):
        return False
    names = {kind.field(index).name for index in range(kind.num_fields)}
    return names == {"bytes", "path"}


def _wanted(schema: Any, columns: Columns) -> list[str]:
    """Return the columns to read, at least one, which tells how many rows there are."""
    names = list(schema.names)
    return names if columns is None else [n for n in names if n in columns] or names[:1]


def _bounded(path: Path, metadata: Any) -> None:
    """Refuse more rows, or values of a column in a group of rows, than any question set has."""
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
    """Refuse a file whose texts take more than TOTAL once each row has its own."""
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
    """Yield the rows of a batch: of media only whether there is something, None for columns that
    were not read."""
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
    """Return the bytes of the longest text that a column says more than once."""
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
