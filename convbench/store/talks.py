"""Conversations of a large run: read where they lie, not held in memory."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from convbench.schema import Conversation
from convbench.store.places import Places
from convbench.store.shape import checked

KEPT = 64
"""Conversations that are held."""


class Talks:
    """Reads the conversations of one file at their places."""

    def __init__(self, path: Path) -> None:
        self._places = Places(path)
        self._kept: OrderedDict[int, Conversation] = OrderedDict()

    def read(self, start: int, length: int) -> Conversation:
        """Return the conversation whose record begins at this byte. RunError for a damaged one."""
        found = self._kept.get(start)
        if found is None:
            line = self._places.read(start, length)
            found = checked(f"{self._places.path}: byte {start}", line, Conversation)
            self._kept[start] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found
