"""A learner that several threads adapt at once: loaded with the first call, a twin for each; or a
process for each, on a device of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from convbench.engine import Stopped
from convbench.judge.adaptation.hand import MODULE, Hand
from convbench.judge.adaptation.learner import Learner, Pupil


class Twins:
    """The learner of some weights and, by thread, its twins."""

    def __init__(self, path: str, devices: Sequence[str] = (), module: str = MODULE) -> None:
        """`devices`: those of the processes, by the names that CUDA_VISIBLE_DEVICES takes; none
        leaves everything in this one."""
        self.path = path
        self.learner: Learner | None = None
        """The weights as they were loaded. It never wears an adapter itself: a twin made while it
        does would share it."""
        self.halted = threading.Event()
        """Set where the command is being interrupted: nothing more is begun."""
        self._hands = [Hand(path, device, module) for device in devices]
        self._found: dict[int, Learner] = {}
        self._free: queue.SimpleQueue[Hand] = queue.SimpleQueue()
        for hand in self._hands:
            self._free.put(hand)
        self._lock = threading.Lock()

    def own(self) -> Learner:
        """Return this thread's twin; Stopped where the command is being interrupted."""
        if self.halted.is_set():
            raise Stopped("interrupted")
        with self._lock:
            thread = threading.get_ident()
            if self.learner is None:
                self.learner = Learner.load(self.path)
            if thread not in self._found:
                self._found[thread] = self.learner.twin()
            return self._found[thread]

    @contextmanager
    def hand(self) -> Iterator[Hand | None]:
        """Lend a process that is free, waiting for one; None where there are none. Stopped as with
        `own`."""
        if not self._hands:
            yield None
            return
        found = self._free.get()
        try:
            if self.halted.is_set():
                raise Stopped("interrupted")
            yield found
        finally:
            self._free.put(found)

    @contextmanager
    def pupil(self) -> Iterator[Pupil]:
        """Lend who learns in this thread."""
        with self.hand() as hand:
            yield hand or self.own()

    def close(self) -> None:
        """End the processes."""
        for hand in self._hands:
            hand.close()
