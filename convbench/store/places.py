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
from convbench.regular import open_to_read
from convbench.store.parts import COMPRESSED, Frame, checked_frames, contents, exists, files
from convbench.store.shape import Record, checked

KEPT = 16
"""Decompressed frames that stay in memory."""
RECORDS_KEPT = 64
"""Parsed records that stay in memory."""


class Places:
    """Reads bytes of a JSON lines file and its parts by offset. Safe for several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._look()

    def _look(self) -> None:
        """List the pieces of the text, plain files and compressed frames, with their offsets."""
        self._pieces: list[tuple[Path, Frame | None]] = []
        sizes: list[int] = []
        for part in files(self.path):
            if part.suffix != COMPRESSED:
                self._pieces.append((part, None))
                sizes.append(part.stat().st_size)
                continue
            for frame in checked_frames(part):
                self._pieces.append((part, frame))
                sizes.append(frame.size)
        self._starts = [0, *accumulate(sizes)]
        self._kept.clear()

    def end(self) -> int:
        """Return the offset of the end of the last complete line, looked up anew."""
        with self._lock:
            self._look()
            if not self._pieces:
                return 0
            path, frame = self._pieces[-1]
            return self._starts[-1] if frame is not None else self._starts[-2] + whole(path)

    def read(self, start: int, length: int) -> bytes:
        """Return `length` bytes from an offset. Raises RunError if the file has fewer."""
        with self._lock:
            try:
                found = self._read(start, length)
            except FileNotFoundError:
                found = b""
            if len(found) != length:  # the file has grown or was compressed since it was listed
                self._look()
                found = self._read(start, length)
        if len(found) != length:
            raise RunError(f"{self.path}: byte {start}: found no record; the file has changed")
        return found

    def _read(self, start: int, length: int) -> bytes:
        found = b""
        while len(found) < length:
            number = bisect_right(self._starts, start + len(found)) - 1
            if number >= len(self._pieces):
                break
            inside = start + len(found) - self._starts[number]
            more = self._piece(number, inside, length - len(found))
            if not more:
                break
            found += more
        return found

    def _piece(self, number: int, inside: int, length: int) -> bytes:
        path, frame = self._pieces[number]
        if frame is None:
            with open_to_read(path) as file:
                file.seek(inside)
                return file.read(length)
        if number in self._kept:
            self._kept.move_to_end(number)
        else:
            with open_to_read(path) as file:
                self._kept[number] = contents(path, file, frame)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[number][inside : inside + length]


class Records(Generic[Record]):
    """Reads and parses the records of one file by offset."""

    def __init__(self, path: Path, model: type[Record]) -> None:
        self.path, self._places, self._model = path, Places(path), model
        self._kept: OrderedDict[int, Record] = OrderedDict()

    def read(self, start: int, length: int) -> Record:
        """Return the record at an offset. Raises RunError for a damaged one."""
        found = self._kept.get(start)
        if found is None:
            line = self._places.read(start, length)
            found = checked(f"{self.path}: byte {start}", line, self._model)
            self._kept[start] = found
            if len(self._kept) > RECORDS_KEPT:
                self._kept.popitem(last=False)
        return found


def size_of(path: Path) -> int:
    """Return the number of bytes of a file and its parts as one text, 0 if there is none."""
    return Places(path)._starts[-1] if exists(path) else 0


def whole(path: Path) -> int:
    """Return the offset of the end of the last complete line of one plain file."""
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
