"""Hashes in order, in a file, in which one is looked up by reading a few."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from convbench.stats.columns import FEW, Column, in_part, part_of, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP = 128
"""One of so many hashes is held; as many are read to look one up."""


class Ordered:
    """The hashes of a column by their lowest bits, and those alike in order; where `placed`, each
    with where it stood."""

    def __init__(self, hashes: Column[int], *, placed: bool = False) -> None:
        self._all, self._places = Column(array("q")), Column(array("q"))
        self._parts = parts_of(len(hashes))
        self._ends = array("q", [0])
        """Where the hashes of each part begin, and the last ones end."""
        self.repeats = 0
        """How many are equal to one before them."""
        for number in range(self._parts):
            self._take(hashes, number, placed)
            self._ends.append(len(self._all))
        self._held = array("q", (block[at] for block in self._all.blocks()
                                 for at in range(0, len(block), STEP)))  # fmt: skip

    def _take(self, hashes: Column[int], number: int, placed: bool) -> None:
        """Put the hashes of one part behind the others."""
        if len(hashes) < FEW:
            pairs = sorted((one, at) for at, one in enumerate(hashes))
            self.repeats = sum(one == after for (one, _), (after, _) in pairwise(pairs))
            self._all.extend(one for one, _ in pairs)
            self._places.extend(at for _, at in pairs)
            return
        if placed:
            mine, at = part_in_order(hashes, number, self._parts)
            self._places.extend(at.tolist())
        else:
            mine = part_of(hashes, number, self._parts)
            mine.sort()
        self.repeats += int((mine[1:] == mine[:-1]).sum())
        self._all.extend(mine.tolist())

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, one: int) -> bool:
        return self._find(one) is not None

    def places(self, one: int) -> Iterator[int]:
        """Yield where a hash stood: once, or as often as there are others like it."""
        at = self._find(one)
        while at is not None:
            yield self._places[at]
            at += 1
            if at == len(self._all) or self._all[at] != one:
                return

    def _find(self, one: int) -> int | None:
        """Return where the first of these stands here; None where there is none."""
        part = one & self._parts - 1
        low, high = self._ends[part], self._ends[part + 1]
        near = bisect_left(self._held, one, -(-low // STEP), -(-high // STEP))
        start = max(low, (near - 1) * STEP)
        some = self._all.some(start, min(high, near * STEP + 1))
        at = bisect_left(some, one)
        return start + at if at < len(some) and some[at] == one else None


def part_in_order(
    hashes: Column[int], number: int, parts: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return those of one part in order, and where each stood."""
    import numpy as np

    at, start = [np.empty(0, np.int64)], 0
    for block in hashes.blocks():
        at.append(np.flatnonzero(in_part(block, number, parts)) + start)
        start += len(block)
    some, places = part_of(hashes, number, parts), np.concatenate(at)
    order = np.argsort(some)
    return some[order], places[order]
