"""A part that stands for the whole, where a dry run would count the tokens of very many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")

TRIED = 2_000
"""Items whose tokens a dry run counts: of more, so many stand for all."""


class Part:
    """The part of many items that a dry run looks at."""

    def __init__(self, count: int, most: int = TRIED) -> None:
        self.count = count
        self.share = min(1.0, most / count)

    def of(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return the part, spread evenly, the first and the last among it."""
        size = round(self.count * self.share)
        if size == self.count:
            return tuple(items)
        return tuple(items[(self.count - 1) * n // (size - 1)] for n in range(size))

    def whole(self, found: int) -> int:
        """Return how many there are of what the part has so many of."""
        return round(found / self.share)

    def describe(self, what: str, counts: Mapping[str, int]) -> Iterator[str]:
        """Yield the counts of all, and that they are taken from a part."""
        if self.share < 1:
            yield f"below, {round(self.count * self.share):,} {what} stand for all {self.count:,}"
        about = "about " if self.share < 1 else ""
        for name, count in counts.items():
            yield f"{name}: {about}{self.whole(count)}"
