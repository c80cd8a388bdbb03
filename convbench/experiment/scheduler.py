"""Steps side by side where what they claim allows it: devices, the CPU, calls.

Knows nothing of experiments: a task has a name, those it comes after, and what it claims.
"""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from convbench.engine.jobs import begin_anew, stopped_together

ALMOST = 1e-9
"""Shares are sums of decimals."""


@dataclass(frozen=True)
class Task:
    """Something to do."""

    name: str
    after: tuple[str, ...] = ()
    """Tasks that must have ended before, however they ended; names of none are left out."""
    places: Sequence[Mapping[str, float]] = ({},)
    """What it takes while it runs, in each place where it could: the share of each resource, above
    0 and up to 1 (the whole). It gets the first place that is free."""


def serial(tasks: Sequence[Task]) -> bool:
    """Whether no two of the tasks could ever run at once, since all take the whole of one thing."""
    wholes = [
        {name for name, share in claims.items() if share >= 1}
        for task in tasks
        for claims in task.places
    ]
    return not wholes or bool(set.intersection(*wholes))


def run(tasks: Sequence[Task], do: Callable[[int, int], None], most: int = 16) -> None:
    """Call `do(number, place)` for every task, in a thread where several can run at once; both
    count from 0.

    In the order of the list: a task that must wait for a resource keeps later ones from it. What
    `do` raises, and an interrupt, ends all: running tasks are stopped (`engine.stops`) and waited
    for, no other begins, and it is raised here. `do` keeps failures that concern one task alone.
    """
    if serial(tasks):
        for number in range(len(tasks)):
            do(number, 0)
        return
    with _terminated():
        try:
            with ThreadPoolExecutor(most, "step") as threads, stopped_together():
                _Run(tasks, do, threads, most).all()
        finally:
            begin_anew()


class _Run:
    """What runs, what waits and what is taken."""

    def __init__(
        self,
        tasks: Sequence[Task],
        do: Callable[[int, int], None],
        threads: ThreadPoolExecutor,
        most: int,
    ) -> None:
        self.tasks, self.do, self.threads, self.most = tasks, do, threads, most
        self.names = {task.name for task in tasks}
        self.waiting = list(range(len(tasks)))
        self.running: dict[Future[None], tuple[int, int]] = {}
        self.taken: dict[str, float] = defaultdict(float)
        self.ended: set[str] = set()

    def all(self) -> None:
        """Run all tasks."""
        while self.waiting or self.running:
            for number, place in self._startable():
                self._start(number, place)
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            for future in done:
                self._end(future)

    def _startable(self) -> Iterator[tuple[int, int]]:
        """Yield (task, place) of those that may begin now; each is begun before the next is looked
        at."""
        wanted: set[str] = set()
        for number in tuple(self.waiting):
            task = self.tasks[number]
            if len(self.running) >= self.most:
                return
            if any(name in self.names and name not in self.ended for name in task.after):
                continue
            free = (n for n, claims in enumerate(task.places) if self._free(claims, wanted))
            if (place := next(free, None)) is not None:
                yield number, place
            else:
                wanted |= {name for claims in task.places for name in claims}

    def _free(self, claims: Mapping[str, float], wanted: set[str]) -> bool:
        fits = all(self.taken[name] + share <= 1 + ALMOST for name, share in claims.items())
        return fits and not wanted & claims.keys()

    def _start(self, number: int, place: int) -> None:
        self.waiting.remove(number)
        self._take(number, place, 1)
        self.running[self.threads.submit(self.do, number, place)] = number, place

    def _take(self, number: int, place: int, sign: int) -> None:
        for name, share in self.tasks[number].places[place].items():
            self.taken[name] += sign * share

    def _end(self, future: Future[None]) -> None:
        number, place = self.running.pop(future)
        self._take(number, place, -1)
        self.ended.add(self.tasks[number].name)
        future.result()


@contextmanager
def _terminated() -> Iterator[None]:
    """Have SIGTERM interrupt, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
