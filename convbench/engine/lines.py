"""A file of JSON lines that only grows, and survives this process being killed."""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from convbench.blot import exact, known
from convbench.errors import RunError


class Lines:
    """JSON objects, one a line, without keys in use. What was written is in the system's cache; no
    fsync."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden = known()
        self._file: FileIO | None = None

    def append(self, line: bytes) -> None:
        """Write a line, its end included. OSError (disk full, ...) goes up to the caller."""
        file = self._file or self._open()
        line = exact(line, self._hidden)
        if file.write(line) != len(line):
            raise OSError(28, f"{self.path}: no space left on device")

    def read(self) -> Iterator[bytes]:
        """Yield the lines; none where there is no file."""
        try:
            with self.path.open("rb") as file:
                yield from file
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read: {error.strerror}") from None

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> FileIO:
        """Open for appending; a torn last line is ended, so that it spoils no other."""
        torn = False
        if self.path.exists() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                file.seek(-1, 2)
                torn = file.read(1) != b"\n"
        self._file = FileIO(self.path, "ab")
        if torn:
            self._file.write(b"\n")
        return self._file


def parse(line: bytes) -> dict[str, Any]:
    """Return a line's object; an empty one where it holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}
