"""Read the questions of a run; those of a large file are looked up, not held in memory."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from functools import cached_property
from pathlib import Path

from convbench.errors import RunError
from convbench.schema import Example
from convbench.store.jsonl import lines, placed
from convbench.store.keys import Hashes, Ordinals, named
from convbench.store.places import Places, size_of
from convbench.store.shape import an_object, checked

LARGE = 8 << 20
"""Bytes of a file from which on its questions are not held in memory."""
KEPT = 4096
"""Questions of a larger file that stay in memory."""
KEY = ("example_id",)


def read_examples(path: Path) -> Mapping[str, Example]:
    """Return the questions in a file by example_id, in its order. Raises RunError if an id occurs
    twice."""
    if size_of(path) > LARGE:
        return ExampleFile(path)
    found: dict[str, Example] = {}
    for number, line in lines(path):
        an_object(f"{path}:{number}", line)
        example = checked(f"{path}:{number}", line, Example)
        if example.example_id in found:
            raise _twice(path, number, example.example_id)
        found[example.example_id] = example
    return found


def _twice(path: Path, number: int, name: str) -> RunError:
    return RunError(
        f"{path}:{number}: found {name!r:.80} a second time; expected one line a question"
    )


class ExampleFile(Mapping[str, Example]):
    """Questions by example_id, read from the file at their byte offsets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        hashes = Hashes()
        self._starts, self._lengths = array("q"), array("i")
        for number, start, line in placed(path):
            hashes.add(named(f"{path}:{number}", line, KEY)[0])
            self._starts.append(start)
            self._lengths.append(len(line))
        self._refuse_twice(hashes)
        self._ordinals = Ordinals(hashes)
        self._kept: OrderedDict[str, Example] = OrderedDict()
        self._there = ""
        """Saves a lookup: conversations about the same question follow each other."""

    def _refuse_twice(self, hashes: Hashes) -> None:
        twice = hashes.repeated()
        if not twice:
            return
        seen: set[str] = set()
        for number, line in lines(self.path):
            name = named(f"{self.path}:{number}", line, KEY)[0]
            if hash(name) in twice:
                if name in seen:
                    raise _twice(self.path, number, name)
                seen.add(name)

    @cached_property
    def _places(self) -> Places:
        return Places(self.path)

    def __getitem__(self, name: str) -> Example:
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = self._read(name)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def _read(self, name: str) -> Example:
        for at in self._ordinals.every(name):
            start = self._starts[at]
            line = self._places.read(start, self._lengths[at])
            found = checked(f"{self.path}: byte {start}", line, Example)
            if found.example_id == name:
                return found
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or (name != self._there and self._ordinals.of(name) is None):
            return False
        self._there = name
        return True

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[str]:
        return (found.example_id for found in self._all())

    def values(self) -> ValuesView[Example]:
        """Return the questions in the order of the file, each read once."""
        return _Values(self)

    def items(self) -> ItemsView[str, Example]:
        """Return (example_id, question) in the order of the file, each read once."""
        return _Items(self)

    def _all(self) -> Iterator[Example]:
        for number, line in lines(self.path):
            yield checked(f"{self.path}:{number}", line, Example)


class _Values(ValuesView[Example]):
    _mapping: ExampleFile

    def __iter__(self) -> Iterator[Example]:
        return self._mapping._all()


class _Items(ItemsView[str, Example]):
    _mapping: ExampleFile

    def __iter__(self) -> Iterator[tuple[str, Example]]:
        return ((found.example_id, found) for found in self._mapping._all())
