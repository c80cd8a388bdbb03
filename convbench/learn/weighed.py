"""Conversations of a log with their weights: where the log lies in files, 16 bytes of each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from convbench.learn.log import InFiles
from convbench.learn.logged import Logged
from convbench.store.made import Made

Item = tuple[Logged, float]


class KeptItems(Made[Item]):
    """Conversations of a log that lies in files, with their weights; an item is made when it is
    looked at."""

    def __init__(self, log: InFiles, places: array[int], weights: array[float]) -> None:
        """`places` are those of the conversations in the log."""
        self._log, self._places, self.weights = log, places, weights

    def __len__(self) -> int:
        return len(self._places)

    def _made(self, at: int) -> Item:
        return self._log[self._places[at]], self.weights[at]

    def by_weight(self) -> KeptItems:
        """Return them with the highest weight first, equals in their order."""
        import numpy as np

        order = np.argsort(-np.frombuffer(self.weights), kind="stable")
        places, weights = array("q", [0]) * len(order), array("d", [0.0]) * len(order)
        np.frombuffer(places, np.int64)[:] = np.frombuffer(self._places, np.int64)[order]
        np.frombuffer(weights)[:] = np.frombuffer(self.weights)[order]
        return KeptItems(self._log, places, weights)


class Weighing:
    """Takes conversations of a log with their weights."""

    def __init__(self, log: Sequence[Logged]) -> None:
        self._log = log
        self._held: list[Item] = []
        self._places, self._weights = array("q"), array("d")

    def add(self, item: Logged, weight: float) -> None:
        """Add one."""
        if isinstance(self._log, InFiles):
            self._places.append(item.at)
            self._weights.append(weight)
        else:
            self._held.append((item, weight))

    def items(self) -> Sequence[Item]:
        """Return them as they were added."""
        if isinstance(self._log, InFiles):
            return KeptItems(self._log, self._places, self._weights)
        return tuple(self._held)


def weights_of(items: Sequence[Item]) -> Sequence[float]:
    """Return the weights."""
    return items.weights if isinstance(items, KeptItems) else [weight for _, weight in items]


def by_weight(items: Sequence[Item]) -> Sequence[Item]:
    """Return them with the highest weight first, equals in their order."""
    if isinstance(items, KeptItems):
        return items.by_weight()
    return sorted(items, key=lambda item: -item[1])
