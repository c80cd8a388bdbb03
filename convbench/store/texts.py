"""Texts of very many records in one buffer: their bytes, and 8 of each."""

from __future__ import annotations

from array import array


class Texts:
    """Texts, one after the other in one buffer."""

    def __init__(self) -> None:
        self._all, self._ends = bytearray(), array("q", [0])

    def add(self, text: str) -> None:
        """Add a text."""
        self._all += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._all))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, at: int) -> str:
        start, end = self._ends[at], self._ends[at + 1]
        return self._all[start:end].decode("utf-8", "surrogatepass")
