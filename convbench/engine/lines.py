"""A file of JSON lines that only grows, and survives this process being killed. What has grown long
is compressed beside it (`store.parts`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from convbench.blot import exact, known
from convbench.regular import open_to_append
from convbench.store.parts import LONG, WORTH, Compressor, raw_lines


class Lines:
    """JSON objects, one a line, without keys in use. What was written is in the system's cache; no
    fsync."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden = known()
        self._file: FileIO | None = None
        self._compressor: Compressor | None = None
        self._size = 0

    def append(self, line: bytes) -> None:
        """Write a line, its end included. OSError (disk full, ...) goes up to the caller."""
        file = self._file or self._open()
        line = exact(line, self._hidden)
        if file.write(line) != len(line):
            raise OSError(28, f"{self.path}: no space left on device")
        self._size += len(line)
        if self._size >= LONG:
            self._seal()

    def read(self) -> Iterator[bytes]:
        """Yield the lines; none where there is no file. RunError where it cannot be read."""
        return raw_lines(self.path)

    def close(self) -> None:
        """Close the file, a long one compressed; a later append opens it again."""
        if self._file is not None:
            if self._size >= WORTH:
                self._seal()
            self._file.close()
            self._file = None
        if self._compressor is not None:
            self._compressor.wait()
            self._compressor = None

    def _open(self) -> FileIO:
        """Open for appending; a torn last line is ended, so that it spoils no other."""
        self._compressor = self._compressor or Compressor(self.path)
        self._file = open_to_append(self.path)
        self._size = self._file.seek(0, os.SEEK_END)
        if self._size and os.pread(self._file.fileno(), 1, self._size - 1) != b"\n":
            self._size += self._file.write(b"\n")
        return self._file

    def _seal(self) -> None:
        """Have what was written compressed, and go on with an empty file."""
        if self._file is not None and self._compressor is not None:
            self._file.close()
            self._compressor.rotate()
            self._open()


def parse(line: bytes) -> dict[str, Any]:
    """Return a line's object; an empty one where it holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}
