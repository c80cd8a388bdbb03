"""What a draw goes by, of each question found in a source, in a few bytes."""

from __future__ import annotations

import hashlib
from array import array

from convbench.store.numbered import Numbered
from convbench.tasks.mapping import Question
from convbench.tasks.splits import ORDER, SPLITS, asked


class Found:
    """Questions of different keys, numbered in the order of their rows."""

    def __init__(self) -> None:
        self.keys, self.groups, self.words = Numbered(), Numbered(), Numbered()
        """Their names; `words` are digests of what is asked."""
        self.group_of, self.words_of = array("i"), array("i")
        """Of each question, the number of its group and of its words."""
        self.split_of = bytearray()
        """Of each question, the place in ORDER of the split that its row says."""
        self.unsaid = False
        """Whether some row says no split."""
        self.odd: Question | None = None
        """The first whose row says no split, or none that there is."""

    def add(self, item: Question) -> int:
        """Add a question, unless there is one of its key; return the number of that key."""
        number = self.keys.number(item.key)
        if number == len(self):
            self.group_of.append(self.groups.number(item.group))
            self.words_of.append(self.words.number(digest(asked(item)).hex()))
            self.split_of.append(self._split(item))
        return number

    def _split(self, item: Question) -> int:
        if item.split in SPLITS:
            return ORDER.index(SPLITS[item.split])
        self.unsaid = self.unsaid or item.split is None
        self.odd = self.odd or item
        return 0

    def __len__(self) -> int:
        return len(self.split_of)


def digest(text: str) -> bytes:
    """Return 16 bytes that name a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]
