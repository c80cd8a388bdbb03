"""What names the records of a file, in few bytes each: 64-bit hashes in a temporary file.

A million names take 8 MB there, where a set of them takes 150 of memory. Where two hashes are equal
the names themselves are compared, if a record could get lost by it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from convbench.errors import RunError
from convbench.stats.columns import FEW, Column, part_of, parts_of
from convbench.store.ordered import Ordered
from convbench.store.shape import an_object


class Hashes:
    """Hashes of names in the order they were added."""

    def __init__(self, names: Iterable[object] = ()) -> None:
        self.all = Column(array("q"), map(hash, names))

    def add(self, name: object) -> int:
        """Add a name; return its hash."""
        found = hash(name)
        self.all.append(found)
        return found

    def repeated(self) -> set[int]:
        """Return those that were added more than once."""
        if len(self.all) < FEW:
            ordered = sorted(self.all)
            return {one for one, next_ in pairwise(ordered) if one == next_}
        again: set[int] = set()
        parts = parts_of(len(self.all))
        for number in range(parts):
            some = part_of(self.all, number, parts)
            some.sort()
            again.update(some[1:][some[1:] == some[:-1]].tolist())
        return again


class Names(Collection[str]):
    """A set of names that tells which are in it and how many, and not their texts."""

    def __init__(self, names: Iterable[str] | Hashes = ()) -> None:
        self._ordered = Ordered((names if isinstance(names, Hashes) else Hashes(names)).all)

    def __contains__(self, name: object) -> bool:
        return hash(name) in self._ordered

    def __len__(self) -> int:
        return len(self._ordered) - self._ordered.repeats

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the names themselves are not kept")


class Ordinals:
    """The place of each name among others."""

    def __init__(self, hashes: Hashes) -> None:
        self._ordered = Ordered(hashes.all, placed=True)

    def of(self, name: str) -> int | None:
        """Return where a name stands; None where it is not among them."""
        return next(self.every(name), None)

    def every(self, name: str) -> Iterator[int]:
        """Yield where a name may stand: once, or more often where others have its hash."""
        return self._ordered.places(hash(name))


class Attempts:
    """How often each key was tried, and whether the newest attempt succeeded."""

    def __init__(self, tried: Iterable[tuple[str, bool]]) -> None:
        hashes, well = Hashes(), Column(array("b"))
        for key, good in tried:
            hashes.add(key)
            well.append(good)
        self._ordered, repeated = Ordered(hashes.all), hashes.repeated()
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
        return (1, True) if found in self._ordered else default

    @property
    def good(self) -> int:
        """Number of keys whose newest attempt succeeded."""
        return self._once + sum(good for _, good in self._told.values())

    def __len__(self) -> int:
        return self._once + len(self._told)


def superseded_ordinals(names: Callable[[], Iterable[tuple[str, ...]]]) -> set[int]:
    """Return the ordinals of names that come once more after them. `names` is asked a second time
    where some do, and must yield the same."""
    hashes = Hashes(names())
    repeated = hashes.repeated()
    last: dict[tuple[str, ...], int] = {}
    older: set[int] = set()
    for number, name in enumerate(names()) if repeated else ():
        if hash(name) in repeated:
            if name in last:
                older.add(last[name])
            last[name] = number
    return older


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
