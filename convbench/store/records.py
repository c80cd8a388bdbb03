"""Records of a large run: read where they lie, not held in memory."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Generic

from convbench.store.places import Places
from convbench.store.shape import Record, checked

KEPT = 64
"""Records that are held."""


class Records(Generic[Record]):
    """Reads the records of one file at their places."""

    def __init__(self, path: Path, model: type[Record]) -> None:
        self.path, self._places, self._model = path, Places(path), model
        self._kept: OrderedDict[int, Record] = OrderedDict()

    def read(self, start: int, length: int) -> Record:
        """Return the record that begins at this byte. RunError for a damaged one."""
        found = self._kept.get(start)
        if found is None:
            line = self._places.read(start, length)
            found = checked(f"{self.path}: byte {start}", line, self._model)
            self._kept[start] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found
