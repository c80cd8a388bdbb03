"""Sets and counts of record keys that hold a 64-bit hash of each, and read keys from JSON lines.

A set of a million names would take 150 MB of memory. Names with equal hashes are compared
themselves wherever a record could get lost otherwise.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from convbench.errors import RunError
from convbench.store.shape import an_object

FEW = 4096
"""Fewer hashes than this are sorted without loading numpy."""


class Hashes:
    """Hashes of names, in the order in which the names were added."""

    def __init__(self, names: Iterable[object] = ()) -> None:
        self.all = array("q", map(hash, names))

    def add(self, name: object) -> None:
        """Add a name."""
        self.all.append(hash(name))

    def repeated(self) -> set[int]:
        """Return the hashes that were added more than once."""
        ordered = self.all[:]
        _sort(ordered)
        return {one for one, after in pairwise(ordered) if one == after}


class Names(Collection[str]):
    """A set of names by their hashes: membership and size, but no iteration."""

    def __init__(self, names: Iterable[str] | Hashes = ()) -> None:
        """Take over `Hashes` without a copy; they are sorted in place."""
        self._hashes = (names if isinstance(names, Hashes) else Hashes(names)).all
        _sort(self._hashes)
        self._repeats = sum(one == after for one, after in pairwise(self._hashes))

    def __contains__(self, name: object) -> bool:
        at = bisect_left(self._hashes, hash(name))
        return at < len(self._hashes) and self._hashes[at] == hash(name)

    def __len__(self) -> int:
        return len(self._hashes) - self._repeats

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the names themselves are not kept")


class Ordinals:
    """Finds the position at which a name was added."""

    def __init__(self, hashes: Hashes) -> None:
        self._places = array("q", _order(hashes.all))
        self._hashes = array("q", map(hashes.all.__getitem__, self._places))

    def of(self, name: str) -> int | None:
        """Return the first position of a name, or None if it was not added."""
        return next(self.every(name), None)

    def every(self, name: str) -> Iterator[int]:
        """Yield the positions of all names that have this name's hash."""
        one = hash(name)
        at = bisect_left(self._hashes, one)
        while at < len(self._hashes) and self._hashes[at] == one:
            yield self._places[at]
            at += 1


def _sort(hashes: array[int]) -> None:
    """Sort hashes in place."""
    if len(hashes) < FEW:
        hashes[:] = array("q", sorted(hashes))
        return
    import numpy as np

    np.frombuffer(hashes, np.int64).sort()


def _order(hashes: array[int]) -> Iterable[int]:
    """Return the positions of hashes in sorted order; equal hashes keep theirs."""
    if len(hashes) < FEW:
        return sorted(range(len(hashes)), key=hashes.__getitem__)
    import numpy as np

    return array("q", np.argsort(np.asarray(hashes), kind="stable").tobytes())


class Attempts:
    """Number of attempts by key, and whether the newest one succeeded."""

    def __init__(self, tried: Iterable[tuple[str, bool]]) -> None:
        hashes, well = Hashes(), bytearray()
        for key, good in tried:
            hashes.add(key)
            well.append(good)
        repeated = hashes.repeated()
        self._told: dict[int, tuple[int, bool]] = {}
        """Attempts and success by hash, only of keys that failed or were tried more than once."""
        for one, flag in zip(hashes.all, well, strict=True):
            if not flag or one in repeated:
                self._told[one] = (self._told.get(one, (0, False))[0] + 1, bool(flag))
        self._once = len(hashes.all) - sum(count for count, _ in self._told.values())
        self._keys = Names(hashes)

    def get(self, key: str, default: tuple[int, bool] = (0, False), /) -> tuple[int, bool]:
        """Return (number of attempts, whether the newest succeeded) of a key."""
        found = hash(key)
        if found in self._told:
            return self._told[found]
        return (1, True) if key in self._keys else default

    @property
    def good(self) -> int:
        """Return the number of keys whose newest attempt succeeded."""
        return self._once + sum(good for _, good in self._told.values())

    def __len__(self) -> int:
        return self._once + len(self._told)


def superseded_ordinals(names: Callable[[], Iterable[tuple[str, ...]]]) -> set[int]:
    """Return the ordinals of names that occur again later. `names` is called a second time if any
    may do so, and must yield the same names."""
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
    """Return the texts of these fields of a JSON line. If they come first, as in our own lines, the
    rest is not parsed. Raises RunError if one is no text."""
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
