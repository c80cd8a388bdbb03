"""Number names in the order of their first occurrence, with 12 to 24 bytes of memory each.

A set of a million names would take 150 MB, and `store.keys` works on hashes alone once all names
are known. Here each new name is compared with those of equal hash, which lie in a temporary file.
"""

from __future__ import annotations

from array import array

from convbench.store.spilled import SpilledPieces

FIRST = 1 << 6
"""Initial number of slots of the hash table."""
LOW = (1 << 32) - 1


class NameNumbers:
    """Distinct names, numbered from 0."""

    def __init__(self) -> None:
        self._texts = SpilledPieces()
        self._slots = array("Q", [0]) * FIRST
        """Upper half: half of a name's hash; lower half: its number plus one; 0 is a free slot.
        A name is in the first free slot from its hash on."""

    def number_of(self, name: str) -> int:
        """Return the number of a name, from 0; a new name is added and gets the next one."""
        half, text = hash(name) >> 32 & LOW, name.encode("utf-8", "surrogatepass")
        last, new = len(self._slots) - 1, len(self)
        at = half & last
        while slot := self._slots[at]:
            number = (slot & LOW) - 1
            if slot >> 32 == half and self._texts[number] == text:
                return number
            at = at + 1 & last
        self._slots[at] = half << 32 | new + 1
        self._texts.add(text)
        if 3 * new > 2 * last:
            self._grow()
        return new

    def _grow(self) -> None:
        before, self._slots = self._slots, array("Q", [0]) * (2 * len(self._slots))
        last = len(self._slots) - 1
        for slot in before:
            if slot:
                at = slot >> 32 & last
                while self._slots[at]:
                    at = at + 1 & last
                self._slots[at] = slot

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: int) -> str:
        return self._texts[number].decode("utf-8", "surrogatepass")
