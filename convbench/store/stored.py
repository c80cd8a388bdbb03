"""Values of very many records in a temporary file, looked up by their places: a byte of each."""

from __future__ import annotations

import json
from array import array
from typing import Any, Generic, TypeVar

from convbench.stats.columns import Bytes

T = TypeVar("T")

BITS = 4
TOGETHER = 1 << BITS
"""Values that are written, and read again, as one: few where they are asked for in no order, many
where one is after the other."""
KEPT = 64
"""So many of these are held as they were read last."""


class Stored(Generic[T]):
    """Values in the order in which they were added, of lists, texts and numbers: a tuple comes back
    as a list."""

    def __init__(self) -> None:
        self._all, self._ends = Bytes(), array("q", [0])
        self._last: list[T] = []
        """Those that are not written yet."""
        self._read: dict[int, list[Any]] = {}

    def add(self, value: T) -> int:
        """Add a value; return its place."""
        self._last.append(value)
        place = len(self) - 1
        if len(self._last) == TOGETHER:
            self._all.add(json.dumps(self._last).encode())
            self._ends.append(len(self._all))
            self._last = []
        return place

    def __len__(self) -> int:
        return (len(self._ends) - 1) * TOGETHER + len(self._last)

    def __getitem__(self, at: int) -> T:
        number, inside = at >> BITS, at & TOGETHER - 1
        found = self._read.get(number)
        if found is None:
            if number == len(self._ends) - 1:
                return self._last[inside]
            found = json.loads(self._all.read(*self._ends[number : number + 2]).decode())
            if len(self._read) >= KEPT:
                del self._read[next(iter(self._read))]
            self._read[number] = found
        value: T = found[inside]
        return value
