"""What names the records of a file, in eight bytes each: 64-bit hashes.

A set of a million names takes 150 MB of memory. Where two hashes are equal the names themselves are
compared, if a record could get lost by it.
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
"""So many hashes are sorted without loading numpy."""


class Hashes:
    """Hashes of names in the order they were added."""

    def __init__(self, names: Iterable[object] = ()) -> None:
        self.all = array("q", map(hash, names))

    def add(self, name: object) -> None:
        """Add a name."""
        self.all.append(hash(name))

    def repeated(self) -> set[int]:
        """Return those that were added more than once."""
        ordered = self.all[:]
        _sort(ordered)
        return {one for one, after in pairwise(ordered) if one == after}


class Names(Collection[str]):
    """A set of names that tells which are in it and how many, and not their texts."""

    def __init__(self, names: Iterable[str] | Hashes = ()) -> None:
        """`Hashes` are taken over, and put in order."""
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
    """The place of each name among others."""

    def __init__(self, hashes: Hashes) -> None:
        self._places = array("q", _order(hashes.all))
        self._hashes = array("q", map(hashes.all.__getitem__, self._places))

    def of(self, name: str) -> int | None:
        """Return where a name stands; None where it is not among them."""
        return next(self.every(name), None)

    def every(self, name: str) -> Iterator[int]:
        """Yield where a name may stand: once, or more often where others have its hash."""
        one = hash(name)
        at = bisect_left(self._hashes, one)
        while at < len(self._hashes) and self._hashes[at] == one:
            yield self._places[at]
            at += 1


def _sort(hashes: array[int]) -> None:
    """Put hashes in order."""
    if len(hashes) < FEW:
        hashes[:] = array("q", sorted(hashes))
        return
    import numpy as np

    np.frombuffer(hashes, np.int64).sort()


def _order(hashes: array[int]) -> Iterable[int]:
    """Return the places of hashes in their order, of equal ones the first before."""
    if len(hashes) < FEW:
        return sorted(range(len(hashes)), key=hashes.__getitem__)
    import numpy as np

    return array("q", np.argsort(np.asarray(hashes), kind="stable").tobytes())


class Attempts:
    """How often each key was tried, and whether the newest attempt succeeded."""

    def __init__(self, tried: Iterable[tuple[str, bool]]) -> None:
        hashes, well = Hashes(), bytearray()
        for key, good in tried:
            hashes.add(key)
            well.append(good)
        repeated = hashes.repeated()
        self._told: dict[int, tuple[int, bool]] = {}
        """Of those that failed, or were tried more than once."""
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
