"""Read records of a JSON lines file at their byte offsets.

An offset counts through the parts and the file as one text, so it stays the same when lines are
moved into a compressed part.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path
from typing import Generic

from convbench.errors import RunError
from convbench.store.parts import (
    COMPRESSED,
    Frame,
    file_exists,
    list_files,
    read_frame,
    read_frames,
)
from convbench.store.shape import Record, parse_record
from convbench.util.regular import open_to_read

CACHED_FRAMES = 16
"""Decompressed frames that stay in memory."""
CACHED_RECORDS = 64
"""Parsed records that stay in memory."""


class OffsetReader:
    """Reads bytes of a JSON lines file and its parts by offset. Safe for several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._list_pieces()

    def _list_pieces(self) -> None:
        """List the pieces of the text, plain files and compressed frames, with their offsets."""
        self._pieces: list[tuple[Path, Frame | None]] = []
        sizes: list[int] = []
        for part in list_files(self.path):
            if part.suffix != COMPRESSED:
                self._pieces.append((part, None))
                sizes.append(part.stat().st_size)
                continue
            for frame in read_frames(part):
                self._pieces.append((part, frame))
                sizes.append(frame.size)
        self._starts = [0, *accumulate(sizes)]
        self._cache.clear()

    def find_end(self) -> int:
        """Return the byte offset just after the last complete line, counted through all parts; 0
        without a file.

        The list of parts is read anew on each call.
        """
        with self._lock:
            self._list_pieces()
            if not self._pieces:
                return 0
            path, frame = self._pieces[-1]
            return self._starts[-1] if frame is not None else self._starts[-2] + end_of_lines(path)

    def read_range(self, start: int, length: int) -> bytes:
        """Return `length` bytes from a byte offset, counted through all parts as decompressed text.

        If the file has fewer, its parts are listed anew and read once more; then RunError.
        """
        with self._lock:
            try:
                data = self._read_pieces(start, length)
            except FileNotFoundError:
                data = b""
            if len(data) != length:  # the file has grown or was compressed since it was listed
                self._list_pieces()
                data = self._read_pieces(start, length)
        if len(data) != length:
            raise RunError(f"{self.path}: byte {start}: found no record; the file has changed")
        return data

    def _read_pieces(self, start: int, length: int) -> bytes:
        data = b""
        while len(data) < length:
            number = bisect_right(self._starts, start + len(data)) - 1
            if number >= len(self._pieces):
                break
            inside = start + len(data) - self._starts[number]
            more = self._read_piece(number, inside, length - len(data))
            if not more:
                break
            data += more
        return data

    def _read_piece(self, number: int, inside: int, length: int) -> bytes:
        path, frame = self._pieces[number]
        if frame is None:
            with open_to_read(path) as file:
                file.seek(inside)
                return file.read(length)
        if number in self._cache:
            self._cache.move_to_end(number)
        else:
            with open_to_read(path) as file:
                self._cache[number] = read_frame(path, file, frame)
            if len(self._cache) > CACHED_FRAMES:
                self._cache.popitem(last=False)
        return self._cache[number][inside : inside + length]


class RecordReader(Generic[Record]):
    """Reads and parses the records of one file by offset."""

    def __init__(self, path: Path, model: type[Record]) -> None:
        self.path, self._reader, self._model = path, OffsetReader(path), model
        self._cache: OrderedDict[int, Record] = OrderedDict()

    def read_record(self, start: int, length: int) -> Record:
        """Return the record at a byte offset, parsed as the reader's model.

        `length` counts the newline. The last 64 records are kept by their offset. Raises RunError
        for a record that is missing or does not match the model.
        """
        record = self._cache.get(start)
        if record is None:
            line = self._reader.read_range(start, length)
            record = parse_record(f"{self.path}: byte {start}", line, self._model)
            self._cache[start] = record
            if len(self._cache) > CACHED_RECORDS:
                self._cache.popitem(last=False)
        return record


def size_of(path: Path) -> int:
    """Return the number of bytes of a file and its parts as one text, 0 if there is none.

    Compressed parts count with their decompressed size; a torn last line counts too.
    """
    return OffsetReader(path)._starts[-1] if file_exists(path) else 0


def end_of_lines(path: Path) -> int:
    """Return the byte offset just after the last newline of one plain file, 0 if it has no newline.

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
