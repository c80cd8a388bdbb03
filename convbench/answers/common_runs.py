"""Runs of tokens that two texts have in common, in time and memory in proportion to both."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache


class Runs:
    """All runs of a sequence of tokens: its suffix automaton."""

    def __init__(self, tokens: Iterable[Hashable]) -> None:
        self.next: list[dict[Hashable, int]] = [{}]
        self.link, self.length = [-1], [0]
        last = 0
        for token in tokens:
            last = self._add(last, token)

    def _state(self, next_: dict[Hashable, int], link: int, length: int) -> int:
        self.next.append(next_)
        self.link.append(link)
        self.length.append(length)
        return len(self.next) - 1

    def _add(self, last: int, token: Hashable) -> int:
        """Return the state of the whole sequence after one more token."""
        new = self._state({}, 0, self.length[last] + 1)
        while last >= 0 and token not in self.next[last]:
            self.next[last][token] = new
            last = self.link[last]
        if last < 0:
            return new
        old = self.next[last][token]
        if self.length[old] > self.length[last] + 1:
            old = self._split(last, token, old)
        self.link[new] = old
        return new

    def _split(self, last: int, token: Hashable, old: int) -> int:
        """Part the runs of a state by length; return the state of the shorter ones."""
        short = self._state(dict(self.next[old]), self.link[old], self.length[last] + 1)
        while last >= 0 and self.next[last].get(token) == old:
            self.next[last][token] = short
            last = self.link[last]
        self.link[old] = short
        return short

    def longest(self, tokens: Iterable[Hashable]) -> Iterator[int]:
        """Yield for each token the length of the longest run that ends with it and is in here."""
        state = length = 0
        for token in tokens:
            while state and token not in self.next[state]:
                state = self.link[state]
                length = self.length[state]
            state = self.next[state].get(token, 0)
            length = length + 1 if state else 0
            yield length


@lru_cache(maxsize=64)
def runs_of(tokens: tuple[Hashable, ...]) -> Runs:
    """Return the runs of a text that others are held against, kept for the next one."""
    return Runs(tokens)
