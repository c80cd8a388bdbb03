"""Base class of sequences whose items are made when they are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence that makes its items on each access; subclasses define its length and an item."""

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        places = range(len(self))[at]
        return (
            self._make_item(places)
            if isinstance(places, int)
            else tuple(map(self._make_item, places))
        )

    def __iter__(self) -> Iterator[T]:
        return map(self._make_item, range(len(self)))

    @abstractmethod
    def _make_item(self, at: int) -> T:
        """Return the item at an index from 0."""
