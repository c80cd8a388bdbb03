"""The questions of a large draw in a temporary file: each is made when it is looked at."""

from __future__ import annotations

from array import array

from convbench.schema import Example
from convbench.store.made import Made
from convbench.store.spilled import Pieces


class Drawn(Made[Example]):
    """So many questions in the order of a draw, added in any: memory holds 4 bytes of each."""

    def __init__(self, count: int) -> None:
        self._added = array("i", [0]) * count
        """Of each, as the how manieth it was added."""
        self._records = Pieces()

    def add(self, at: int, example: Example) -> None:
        """Add the one that the draw has at a place from 0."""
        self._added[at] = len(self._records)
        self._records.add(example.model_dump_json().encode())

    def __len__(self) -> int:
        return len(self._added)

    def _made(self, at: int) -> Example:
        return Example.model_validate_json(self._records[self._added[at]])
