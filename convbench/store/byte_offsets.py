"""Read records of a JSON lines file at their byte offsets."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Generic

from convbench.errors import RunError
from convbench.store.shape import Record, parse_record
from convbench.util.regular import open_to_read

CACHED_RECORDS = 64
"""Parsed records that stay in memory."""


def read_range(path: Path, start: int, length: int) -> bytes:
    """Return `length` bytes of a file from a byte offset. Raises RunError if it has fewer."""
    try:
        with open_to_read(path) as file:
            file.seek(start)
            data = file.read(length)
    except FileNotFoundError:
        data = b""
    if len(data) != length:
        raise RunError(f"{path}: byte {start}: found no record; the file has changed")
    return data


class RecordReader(Generic[Record]):
    """Reads and parses the records of one file by offset."""

    def __init__(self, path: Path, model: type[Record]) -> None:
        self.path, self._model = path, model
        self._cache: OrderedDict[int, Record] = OrderedDict()

    def read_record(self, start: int, length: int) -> Record:
        """Return the record at a byte offset, parsed as the reader's model.

        `length` counts the newline. The last 64 records are kept by their offset. Raises RunError
        for a record that is missing or does not match the model.
        """
        record = self._cache.get(start)
        if record is None:
            line = read_range(self.path, start, length)
            record = parse_record(f"{self.path}: byte {start}", line, self._model)
            self._cache[start] = record
            if len(self._cache) > CACHED_RECORDS:
                self._cache.popitem(last=False)
        return record


def size_of(path: Path) -> int:
    """Return the number of bytes of a file, 0 if there is none; a torn last line counts too."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def end_of_lines(path: Path) -> int:
    """Return the byte offset just after the last newline of a file, 0 if it has no newline.

    Raises FileNotFoundError if there is no file.
    """
    with open_to_read(path) as file:
        size = at = file.seek(0, 2)
        while at > 0:
            start = max(0, at - (1 << 16))
            file.seek(start)
            newline = file.read(at - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            at = start
    return 0 if size else size
