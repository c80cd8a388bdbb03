"""Conversations of other logs in another order: some of them, several logs as one, with rewards of
another scale. Of logs that lie in files memory holds some 20 bytes of each."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from convbench.learn.log import InFiles, KeptTasks
from convbench.learn.logged import Logged
from convbench.stats.columns import Column
from convbench.store.run import Run
from convbench.store.texts import Texts


class Picking:
    """Takes conversations of some logs, in whatever order."""

    def __init__(self, *logs: Sequence[Logged], runs: Sequence[Run] = ()) -> None:
        """`runs` hold the logs, where these become one whose questions have names of its own."""
        self._large = any(isinstance(log, InFiles) for log in logs)
        self._held: list[Logged] = []
        self._known: dict[str, int] = {}
        self._picked = Picked(logs, runs)

    def add(self, item: Logged, log: int = 0, place: int | None = None) -> None:
        """Add one as it shall be, and its place in which of the logs; without one that which it
        knows itself."""
        if not self._large:
            self._held.append(item)
            return
        task = self._known.setdefault(item.task, len(self._known))
        self._picked.add(item, log, item.at if place is None else place, task)

    def items(self) -> Sequence[Logged]:
        """Return them as they were added."""
        return self._picked if len(self._picked) else tuple(self._held)


class Picked(InFiles):
    """Conversations of logs of which one at least lies in files; one is made when it is looked
    at."""

    def __init__(self, logs: Sequence[Sequence[Logged]], runs: Sequence[Run]) -> None:
        self._logs, self._runs = logs, runs
        self._names = Texts()
        """Of questions, as they first came."""
        self._log, self._task = array("i"), array("i")
        self._place, self._reward = array("q"), array("d")
        self._turns, self._ends = Column(array("d")), Column(array("q"), [0])
        """Rewards of turns, of one conversation after the other; behind the last of each."""

    def add(self, item: Logged, log: int, place: int, task: int) -> None:
        """Add one, and the number of its question; a question that is new has the next one."""
        if task == len(self._names):
            self._names.add(item.task)
        self._log.append(log)
        self._task.append(task)
        self._place.append(place)
        self._reward.append(item.reward)
        self._turns.extend(item.turns)
        self._ends.append(len(self._turns))

    def __len__(self) -> int:
        return len(self._place)

    def _made(self, at: int) -> Logged:
        log = self._log[at]
        found = self._logs[log][self._place[at]]
        turns: Sequence[float] = ()
        if len(self._turns):
            turns = self._turns.some(*self._ends.some(at, at + 2))
        run, group = found.run, found.group
        if self._runs or group:
            group = self._names[self._task[at]]
        if self._runs:
            run = self._runs[log]
        return Logged(found.talk, found.asked, self._reward[at], tuple(turns), run, group, at)

    def tasks(self) -> Mapping[str, Sequence[Logged]]:
        """The conversations by question, in the order in which questions first come."""
        import numpy as np

        numbers = np.frombuffer(self._task, self._task.typecode)
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], np.arange(len(self._names) + 1))
        return KeptTasks(self, self._names, array("q", starts.tobytes()),
                         array("q", order.tobytes()))  # fmt: skip
