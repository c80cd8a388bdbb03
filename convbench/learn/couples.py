"""Better and worse conversations of a log, and what their replies make: of a log that lies in
files, some bytes of each."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeVar

from convbench.learn.log import InFiles
from convbench.learn.logged import Logged
from convbench.stats.columns import Column
from convbench.store.made import Made

T = TypeVar("T")


class Couples(Made[tuple[Logged, Logged]]):
    """Conversations two by two, the better one first."""

    def __init__(self, log: Sequence[Logged] = ()) -> None:
        """`log` holds all that are added; without one they are held themselves."""
        self._log = log if isinstance(log, InFiles) else None
        self._held: list[tuple[Logged, Logged]] = []
        self._better, self._worse = Column(array("q")), Column(array("q"))
        """Their places in a log that lies in files."""

    def add(self, better: Logged, worse: Logged) -> None:
        """Add two."""
        if self._log is None:
            self._held.append((better, worse))
            return
        self._better.append(better.at)
        self._worse.append(worse.at)

    def __len__(self) -> int:
        return len(self._held) + len(self._better)

    def _made(self, at: int) -> tuple[Logged, Logged]:
        if self._log is None:
            return self._held[at]
        return self._log[self._better[at]], self._log[self._worse[at]]


class OfCouples(Made[T]):
    """What is made of two conversations, a turn of each and the number of a reply in both."""

    def __init__(
        self, couples: Couples, make: Callable[[Logged, Logged, int, int, int], T]
    ) -> None:
        self._couples, self._make = couples, make
        self._columns = [Column(array("i")) for _ in range(4)]

    def add(self, couple: int, turn: int, other: int, reply: int) -> None:
        """Add one; `couple` is the place of the conversations."""
        for column, number in zip(self._columns, (couple, turn, other, reply), strict=True):
            column.append(number)

    def __len__(self) -> int:
        return len(self._columns[0])

    def _made(self, at: int) -> T:
        couple, turn, other, reply = (column[at] for column in self._columns)
        return self._make(*self._couples[couple], turn, other, reply)
