"""Columns of numbers, one of each of very many records: few in memory, the rest in a file.

The file is a temporary one without a name, so that it ends with the process, however that ends.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from convbench.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 13
"""Numbers that a column holds in memory, and that are read at once."""
AT_ONCE = BLOCK * 8
"""Bytes that are held before they are written."""
N = TypeVar("N", int, float)


class Column(Generic[N]):
    """Numbers in the order in which they were added."""

    def __init__(self, kind: array[N], numbers: Iterable[N] = ()) -> None:
        """`kind` is an empty array of the type of number: `Column(array("q"))`."""
        self._last: array[N] = kind
        self._wide = kind.itemsize
        self._file: Spilled | None = None
        self._there = 0
        """Numbers in the file: whole blocks."""
        self.extend(numbers)

    def append(self, number: N) -> None:
        """Add a number."""
        self._last.append(number)
        if len(self._last) >= BLOCK:
            self._write()

    def extend(self, numbers: Iterable[N]) -> None:
        """Add numbers."""
        coming = iter(numbers)
        while True:
            before = len(self._last)
            self._last.extend(islice(coming, BLOCK - before))
            if len(self._last) < BLOCK:
                return
            self._write()

    def __len__(self) -> int:
        return self._there + len(self._last)

    def __iter__(self) -> Iterator[N]:
        for block in self.blocks():
            yield from block

    def __getitem__(self, at: int) -> N:
        """Return the number at a place from 0."""
        return self.some(at, at + 1)[0]

    def some(self, start: int, end: int) -> array[N]:
        """Return those from one place to before another."""
        found = self._last[:0]
        if start < self._there:
            assert self._file is not None
            until = min(end, self._there) * self._wide
            found.frombytes(self._file.read(start * self._wide, until))
        if end > self._there:
            found.extend(self._last[max(0, start - self._there) : end - self._there])
        return found

    def blocks(self) -> Iterator[array[N]]:
        """Yield them `BLOCK` at a time, and what is left."""
        for at in range(0, self._there, BLOCK):
            yield self.some(at, at + BLOCK)
        if self._last:
            yield self._last[:]

    def whole(self) -> NDArray[Any]:
        """Return all of them in memory."""
        import numpy as np

        found = np.empty(len(self), self._last.typecode)
        for at, block in enumerate(self.blocks()):
            found[at * BLOCK : at * BLOCK + len(block)] = block
        return found

    def _write(self) -> None:
        if self._file is None:
            self._file = Spilled()
        self._file.append(memoryview(self._last).cast("B"))
        self._there += len(self._last)
        self._last = self._last[:0]


class Bytes:
    """Bytes, one after the other."""

    def __init__(self) -> None:
        self._last = bytearray()
        self._file: Spilled | None = None
        self._there = 0

    def add(self, more: bytes) -> None:
        """Add some behind the others."""
        self._last += more
        if len(self._last) >= AT_ONCE:
            if self._file is None:
                self._file = Spilled()
            self._file.append(memoryview(self._last))
            self._there += len(self._last)
            self._last = bytearray()

    def __len__(self) -> int:
        return self._there + len(self._last)

    def read(self, start: int, end: int) -> bytes:
        """Return those from one byte to before another."""
        found = b""
        if start < self._there:
            assert self._file is not None
            found = self._file.read(start, min(end, self._there))
        if end > self._there:
            found += self._last[max(0, start - self._there) : end - self._there]
        return found


class Pieces:
    """Pieces of bytes in the order in which they were added, numbered from 0."""

    def __init__(self) -> None:
        self._all, self._ends = Bytes(), Column(array("q"), [0])

    def add(self, piece: bytes) -> None:
        """Add a piece behind the others."""
        self._all.add(piece)
        self._ends.append(len(self._all))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> bytes:
        start, end = self._ends.some(number, number + 2)
        return self._all.read(start, end)


class Spilled:
    """A temporary file without a name."""

    def __init__(self) -> None:
        try:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        except OSError as error:
            raise _no_room(error) from None
        self._number, self._size = self._file.fileno(), 0

    def append(self, some: memoryview) -> None:
        """Write some bytes at its end."""
        try:
            while some:
                written = os.pwrite(self._number, some, self._size)
                some, self._size = some[written:], self._size + written
        except OSError as error:
            raise _no_room(error) from None

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from one to before another, those that are there."""
        return os.pread(self._number, end - start, start)


def _no_room(error: OSError) -> RunError:
    return RunError(
        f"{tempfile.gettempdir()}: a temporary file cannot be written: "
        f"{error.strerror or error}; expected room there, or another folder in TMPDIR"
    )
