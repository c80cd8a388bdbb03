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
from convbench.store.shape import parse_object

FEW = 4096
"""Fewer hashes than this are sorted without loading numpy."""


class Hashes:
    """Hashes of names, in the order in which the names were added."""

    def __init__(self, names: Iterable[object] = ()) -> None:
        self.all = array("q", map(hash, names))

    def add(self, name: object) -> None:
        """Add a name."""
        self.all.append(hash(name))

    def find_repeated(self) -> set[int]:
        """Return the hashes that were added more than once, empty if none."""
        ordered = self.all[:]
        _sort_hashes(ordered)
        return {before for before, after in pairwise(ordered) if before == after}


class NameSet(Collection[str]):
    """A set of names by their hashes: membership and size, but no iteration."""

    def __init__(self, names: Iterable[str] | Hashes = ()) -> None:
        """Take over `Hashes` without a copy; they are sorted in place."""
        self._hashes = (names if isinstance(names, Hashes) else Hashes(names)).all
        _sort_hashes(self._hashes)
        self._repeats = sum(before == after for before, after in pairwise(self._hashes))

    def __contains__(self, name: object) -> bool:
        at = bisect_left(self._hashes, hash(name))
        return at < len(self._hashes) and self._hashes[at] == hash(name)

    def __len__(self) -> int:
        return len(self._hashes) - self._repeats

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the names themselves are not kept")


class NameOrdinals:
    """Finds the position at which a name was added."""

    def __init__(self, hashes: Hashes) -> None:
        self._positions = array("q", _sorted_positions(hashes.all))
        self._hashes = array("q", map(hashes.all.__getitem__, self._positions))

    def ordinal_of(self, name: str) -> int | None:
        """Return the first position, from 0, of a name with this name's hash, or None if there is
        none.

        Names are not compared, so that rarely it is the position of another name with an equal
        hash.
        """
        return next(self.possible_ordinals(name), None)

    def possible_ordinals(self, name: str) -> Iterator[int]:
        """Yield, in ascending order, the positions from 0 of all names that have this name's
        hash."""
        name_hash = hash(name)
        at = bisect_left(self._hashes, name_hash)
        while at < len(self._hashes) and self._hashes[at] == name_hash:
            yield self._positions[at]
            at += 1


def _sort_hashes(hashes: array[int]) -> None:
    """Sort hashes in place."""
    if len(hashes) < FEW:
        hashes[:] = array("q", sorted(hashes))
        return
    import numpy as np

    np.frombuffer(hashes, np.int64).sort()


def _sorted_positions(hashes: array[int]) -> Iterable[int]:
    """Return the positions of hashes in sorted order; equal hashes keep theirs."""
    if len(hashes) < FEW:
        return sorted(range(len(hashes)), key=hashes.__getitem__)
    import numpy as np

    return array("q", np.argsort(np.asarray(hashes), kind="stable").tobytes())


class AttemptCounts:
    """Number of attempts by key, and whether the newest one succeeded."""

    def __init__(self, tried: Iterable[tuple[str, bool]]) -> None:
        hashes, well = Hashes(), bytearray()
        for key, good in tried:
            hashes.add(key)
            well.append(good)
        repeated = hashes.find_repeated()
        self._exceptions: dict[int, tuple[int, bool]] = {}
        """Attempts and success by hash, only of keys that failed or were tried more than once."""
        for key_hash, flag in zip(hashes.all, well, strict=True):
            if not flag or key_hash in repeated:
                self._exceptions[key_hash] = (
                    self._exceptions.get(key_hash, (0, False))[0] + 1,
                    bool(flag),
                )
        self._succeeded_once = len(hashes.all) - sum(
            count for count, _ in self._exceptions.values()
        )
        self._keys = NameSet(hashes)

    def get(self, key: str, default: tuple[int, bool] = (0, False), /) -> tuple[int, bool]:
        """Return (number of attempts, whether the newest succeeded) of a key; `default` for one
        never tried."""
        key_hash = hash(key)
        if key_hash in self._exceptions:
            return self._exceptions[key_hash]
        return (1, True) if key in self._keys else default

    @property
    def success_count(self) -> int:
        """Return the number of keys whose newest attempt succeeded."""
        return self._succeeded_once + sum(good for _, good in self._exceptions.values())

    def __len__(self) -> int:
        return self._succeeded_once + len(self._exceptions)


def superseded_ordinals(names: Callable[[], Iterable[tuple[str, ...]]]) -> set[int]:
    """Return the positions, from 0, of names that occur again later; empty if all differ.

    `names` is called a second time if any hash repeats, and must yield the same names.
    """
    hashes = Hashes(names())
    repeated = hashes.find_repeated()
    last: dict[tuple[str, ...], int] = {}
    older: set[int] = set()
    for number, name in enumerate(names()) if repeated else ():
        if hash(name) in repeated:
            if name in last:
                older.add(last[name])
            last[name] = number
    return older


def read_key_fields(where: str, line: bytes, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts of these fields of a JSON line, in the order of `names`.

    If they come first in the line and in this order, the rest of it is not parsed. Raises RunError
    beginning with `where` if the line is no JSON object, or if a field is missing or no text.
    """
    match = _key_pattern(names).match(line)
    if match is not None:
        try:
            return tuple(text.decode() for text in match.groups())
        except UnicodeDecodeError:
            raise RunError(f"{where}: damaged, not JSON: not UTF-8") from None
    record = parse_object(where, line, names)
    return tuple(record[name] for name in names)


@lru_cache
def _key_pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    fields = rb",".join(rb'"%b":"([^"\\\x00-\x1f]*)"' % re.escape(n.encode()) for n in names)
    return re.compile(rb"\{" + fields)
