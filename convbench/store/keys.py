"""What names the records of a file, in few bytes each: 64-bit hashes in an array.

A million names take 8 MB so, where a set of them takes 150; those that are only gone through, or
looked at for two of one name, lie in a file. Where two hashes are equal the names themselves are
compared, if a record could get lost by it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from convbench.errors import RunError
from convbench.stats.columns import PART, Column, in_part, part_of, parts_of
from convbench.store.shape import an_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW = 4096
"""So many are sorted without loading numpy."""


class Hashes:
    """Hashes of names in the order they were added."""

    def __init__(self, names: Iterable[object] = ()) -> None:
        self.all = Column(array("q"), map(hash, names))

    def add(self, name: object) -> int:
        """Add a name; return its hash."""
        found = hash(name)
        self.all.append(found)
        return found

    def in_order(self) -> array[int]:
        """Return them sorted, in memory."""
        if len(self.all) < FEW:
            return array("q", sorted(self.all))
        import numpy as np

        found = array("q", [0]) * len(self.all)
        view, start = np.frombuffer(found, np.int64), 0
        for block in self.all.blocks():
            view[start : start + len(block)] = block
            start += len(block)
        view.sort()
        return found

    def repeated(self) -> set[int]:
        """Return those that were added more than once."""
        if len(self.all) < FEW:
            return set(_again(array("q", sorted(self.all))))
        again: set[int] = set()
        parts = parts_of(len(self.all))
        for number in range(parts):
            some = part_of(self.all, number, parts)
            some.sort()
            again.update(some[1:][some[1:] == some[:-1]].tolist())
        return again

    def places(self, of: Hashes) -> array[int]:
        """Return where each of some other names stands among these, which are all different; -1
        where it does not. Memory holds 4 bytes of each, 8 from 2^31 on."""
        found = array("i" if len(self.all) < 1 << 31 else "q", [-1]) * len(of.all)
        if len(self.all) < FEW and len(of.all) < FEW:
            known = {one: at for at, one in enumerate(self.all)}
            found[:] = array(found.typecode, (known.get(one, -1) for one in of.all))
            return found
        import numpy as np

        into = np.frombuffer(found, found.typecode)
        parts = parts_of(len(self.all))
        for number in range(parts):
            mine, place = self._placed(number, parts)
            start = 0
            for block in of.all.blocks() if len(mine) else ():
                inside = np.flatnonzero(in_part(block, number, parts))
                theirs = np.frombuffer(block, np.int64)[inside]
                near = np.minimum(mine.searchsorted(theirs), len(mine) - 1)
                into[start + inside] = np.where(mine[near] == theirs, place[near], -1)
                start += len(block)
        return found

    def _placed(self, number: int, parts: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return those of one part in order, and the place of each."""
        import numpy as np

        at, start = [np.empty(0, np.int64)], 0
        for block in self.all.blocks():
            at.append(np.flatnonzero(in_part(block, number, parts)) + start)
            start += len(block)
        some, places = part_of(self.all, number, parts), np.concatenate(at)
        order = np.argsort(some)
        return some[order], places[order]


def _again(ordered: array[int]) -> list[int]:
    """Return each that is equal to the one before it."""
    if len(ordered) < FEW:
        pairs = zip(ordered, islice(ordered, 1, None), strict=False)
        return [one for one, other in pairs if one == other]
    import numpy as np

    found = np.frombuffer(ordered, np.int64)
    again: list[int] = found[1:][found[1:] == found[:-1]].tolist()
    return again


def _repeats(ordered: array[int]) -> int:
    """Return how many are equal to the one before them."""
    if len(ordered) < FEW:
        return len(_again(ordered))
    import numpy as np

    found = np.frombuffer(ordered, np.int64)
    some = (found[start : start + PART + 1] for start in range(0, len(found), PART))
    return sum(int(np.count_nonzero(one[1:] == one[:-1])) for one in some)


class Names(Collection[str]):
    """A set of names that tells which are in it and how many, and not their texts."""

    def __init__(self, names: Iterable[str] | Hashes = ()) -> None:
        self._ordered = (names if isinstance(names, Hashes) else Hashes(names)).in_order()
        self._again = _repeats(self._ordered)

    def __contains__(self, name: object) -> bool:
        found = hash(name)
        at = bisect_left(self._ordered, found)
        return at < len(self._ordered) and self._ordered[at] == found

    def __len__(self) -> int:
        return len(self._ordered) - self._again

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the names themselves are not kept")


class Ordinals:
    """The place of each name among names that are all different; memory holds 12 bytes of each."""

    def __init__(self, hashes: Hashes) -> None:
        if len(hashes.all) < FEW:
            found = list(hashes.all)
            self._place = array("i", sorted(range(len(found)), key=found.__getitem__))
            self._ordered = array("q", sorted(found))
            return
        import numpy as np

        order = np.argsort(hashes.all.whole())
        self._place = array("i" if len(order) < 1 << 31 else "q", [0]) * len(order)
        np.frombuffer(self._place, self._place.typecode)[:] = order
        del order
        self._ordered = hashes.in_order()

    def of(self, name: str) -> int | None:
        """Return where a name stands; None where it is not among them."""
        found = hash(name)
        at = bisect_left(self._ordered, found)
        there = at < len(self._ordered) and self._ordered[at] == found
        return self._place[at] if there else None


class Attempts:
    """How often each key was tried, and whether the newest attempt succeeded."""

    def __init__(self, tried: Iterable[tuple[str, bool]]) -> None:
        hashes, well = Hashes(), bytearray()
        for key, good in tried:
            hashes.add(key)
            well.append(good)
        self._ordered = hashes.in_order()
        repeated = set(_again(self._ordered))
        self._told: dict[int, tuple[int, bool]] = {}
        """Of those that failed, or were tried more than once."""
        for one, flag in zip(hashes.all, well, strict=True):
            if not flag or one in repeated:
                self._told[one] = (self._told.get(one, (0, False))[0] + 1, bool(flag))
        self._once = len(self._ordered) - sum(count for count, _ in self._told.values())

    def get(self, key: str, default: tuple[int, bool] = (0, False), /) -> tuple[int, bool]:
        """Return (number of attempts, whether the newest succeeded) of a key."""
        found = hash(key)
        if found in self._told:
            return self._told[found]
        at = bisect_left(self._ordered, found)
        there = at < len(self._ordered) and self._ordered[at] == found
        return (1, True) if there else default

    @property
    def good(self) -> int:
        """Number of keys whose newest attempt succeeded."""
        return self._once + sum(good for _, good in self._told.values())

    def __len__(self) -> int:
        return self._once + len(self._told)


def named(where: str, line: bytes, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts of these fields of a record, which stand first in a line of ours; RunError
    where one is no text."""
    found = _first(names).match(line)
    if found is not None:
        try:
            return tuple(one.decode() for one in found.groups())
        except UnicodeDecodeError:
            raise RunError(f"{where}: damaged, not JSON: not UTF-8") from None
    record = an_object(where, line, names)
    return tuple(record[name] for name in names)


@lru_cache
def _first(names: tuple[str, ...]) -> re.Pattern[bytes]:
    fields = rb",".join(rb'"%b":"([^"\\\x00-\x1f]*)"' % re.escape(n.encode()) for n in names)
    return re.compile(rb"\{" + fields)
