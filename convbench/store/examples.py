"""Read the questions of a run; those of a large file are looked up, not held in memory."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from pathlib import Path

from convbench.errors import RunError
from convbench.schema import Example
from convbench.store.byte_offsets import read_range, size_of
from convbench.store.jsonl import lines_with_offsets, numbered_lines
from convbench.store.keys import Hashes, NameOrdinals, read_key_fields
from convbench.store.shape import parse_object, parse_record

LARGE = 8 << 20
"""Bytes of a file from which on its questions are not held in memory."""
CACHED_EXAMPLES = 4096
"""Questions of a larger file that stay in memory."""
KEY = ("example_id",)


def read_examples(path: Path) -> Mapping[str, Example]:
    """Return the questions in a file by example_id, in its order; empty without a file.

    A file of more than 8 MiB gives an `ExampleFile`, which reads questions when they are looked up,
    any other a dict. Raises RunError for a damaged line and for an id that occurs twice.
    """
    if size_of(path) > LARGE:
        return ExampleFile(path)
    examples: dict[str, Example] = {}
    for number, line in numbered_lines(path):
        parse_object(f"{path}:{number}", line)
        example = parse_record(f"{path}:{number}", line, Example)
        if example.example_id in examples:
            raise _duplicate_error(path, number, example.example_id)
        examples[example.example_id] = example
    return examples


def _duplicate_error(path: Path, number: int, name: str) -> RunError:
    return RunError(
        f"{path}:{number}: found {name!r:.80} a second time; expected one line a question"
    )


class ExampleFile(Mapping[str, Example]):
    """Questions by example_id, read from the file at their byte offsets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        hashes = Hashes()
        self._starts, self._lengths = array("q"), array("i")
        for number, start, line in lines_with_offsets(path):
            hashes.add(read_key_fields(f"{path}:{number}", line, KEY)[0])
            self._starts.append(start)
            self._lengths.append(len(line))
        self._refuse_duplicates(hashes)
        self._ordinals = NameOrdinals(hashes)
        self._cache: OrderedDict[str, Example] = OrderedDict()
        self._last_name = ""
        """Saves a lookup: conversations about the same question follow each other."""

    def _refuse_duplicates(self, hashes: Hashes) -> None:
        repeated = hashes.find_repeated()
        if not repeated:
            return
        seen: set[str] = set()
        for number, line in numbered_lines(self.path):
            name = read_key_fields(f"{self.path}:{number}", line, KEY)[0]
            if hash(name) in repeated:
                if name in seen:
                    raise _duplicate_error(self.path, number, name)
                seen.add(name)

    def __getitem__(self, name: str) -> Example:
        example = self._cache.get(name)
        if example is None:
            example = self._cache[name] = self._read_example(name)
            if len(self._cache) > CACHED_EXAMPLES:
                self._cache.popitem(last=False)
        return example

    def _read_example(self, name: str) -> Example:
        for at in self._ordinals.possible_ordinals(name):
            start = self._starts[at]
            line = read_range(self.path, start, self._lengths[at])
            example = parse_record(f"{self.path}: byte {start}", line, Example)
            if example.example_id == name:
                return example
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or (
            name != self._last_name and self._ordinals.ordinal_of(name) is None
        ):
            return False
        self._last_name = name
        return True

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[str]:
        return (example.example_id for example in self._iter_examples())

    def values(self) -> ValuesView[Example]:
        """Return a view of the questions in the order of the file, which each iteration reads
        anew."""
        return _ExampleValues(self)

    def items(self) -> ItemsView[str, Example]:
        """Return a view of (example_id, question) in the order of the file, which each iteration
        reads anew."""
        return _ExampleItems(self)

    def _iter_examples(self) -> Iterator[Example]:
        for number, line in numbered_lines(self.path):
            yield parse_record(f"{self.path}:{number}", line, Example)


class _ExampleValues(ValuesView[Example]):
    _mapping: ExampleFile

    def __iter__(self) -> Iterator[Example]:
        return self._mapping._iter_examples()


class _ExampleItems(ItemsView[str, Example]):
    _mapping: ExampleFile

    def __iter__(self) -> Iterator[tuple[str, Example]]:
        return ((example.example_id, example) for example in self._mapping._iter_examples())
