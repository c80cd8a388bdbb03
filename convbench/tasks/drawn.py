"""The questions of a large draw in a temporary file: each is made when it is looked at."""

from __future__ import annotations

from array import array

from convbench.schema import Example
from convbench.stats.columns import Bytes
from convbench.store.made import Made


class Drawn(Made[Example]):
    """Questions in an order that is told before they are added: memory holds 16 bytes of each."""

    def __init__(self, places: array[int]) -> None:
        """`places` says of each, in their order, as the how manieth it is added."""
        self._places, self._all, self._ends = places, Bytes(), array("q", [0])

    def add(self, example: Example) -> None:
        """Add the next one."""
        self._all.add(example.model_dump_json().encode())
        self._ends.append(len(self._all))

    def __len__(self) -> int:
        return len(self._places)

    def _made(self, at: int) -> Example:
        place = self._places[at]
        start, end = self._ends[place : place + 2]
        return Example.model_validate_json(self._all.read(start, end))
