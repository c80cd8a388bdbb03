"""Bytes in temporary files without a name, which go with the process, however it ends."""

from __future__ import annotations

import os
import tempfile
from typing import IO

from convbench.errors import RunError

AT_ONCE = 64 << 10
"""Bytes that are held before they are written."""
NUMBER = 8
"""Bytes of a number."""


class SpilledBytes:
    """Bytes, one after the other; the last ones in memory."""

    def __init__(self) -> None:
        self._last = bytearray()
        self._file: IO[bytes] | None = None
        self._written = 0

    def add(self, more: bytes) -> None:
        """Append bytes; beyond 64 KiB they are written to a temporary file.

        Raises RunError if that fails.
        """
        self._last += more
        if len(self._last) >= AT_ONCE:
            self._write_held()

    def _write_held(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            left = memoryview(self._last)
            while left:
                count = os.pwrite(self._file.fileno(), left, self._written)
                left, self._written = left[count:], self._written + count
        except OSError as error:
            raise RunError(
                f"{tempfile.gettempdir()}: a temporary file cannot be written: "
                f"{error.strerror or error}; expected room there, or another folder in TMPDIR"
            ) from None
        self._last = bytearray()

    def __len__(self) -> int:
        return self._written + len(self._last)

    def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes from offset `start` up to, but without, `end`; fewer beyond the last
        byte."""
        written = b""
        if self._file is not None and start < self._written:
            written = os.pread(self._file.fileno(), min(end, self._written) - start, start)
        held = self._last[max(0, start - self._written) : max(0, end - self._written)]
        return written + held


class SpilledPieces:
    """Pieces of bytes in the order in which they were added, numbered from 0."""

    def __init__(self) -> None:
        self._all, self._ends = SpilledBytes(), SpilledBytes()

    def add(self, piece: bytes) -> None:
        """Append a piece, which gets the next number from 0.

        Raises RunError if a temporary file cannot be written.
        """
        self._all.add(piece)
        self._ends.add(len(self._all).to_bytes(NUMBER))

    def __len__(self) -> int:
        return len(self._ends) // NUMBER

    def __getitem__(self, number: int) -> bytes:
        start = self._read_end(number - 1) if number else 0
        return self._all.read_range(start, self._read_end(number))

    def _read_end(self, number: int) -> int:
        return int.from_bytes(self._ends.read_range(NUMBER * number, NUMBER * (number + 1)))
