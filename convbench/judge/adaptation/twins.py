"""A learner that several threads adapt at once: loaded with the first call, a twin for each."""

from __future__ import annotations

import threading

from convbench.engine import Stopped
from convbench.judge.adaptation.learner import Learner


class Twins:
    """The learner of some weights and, by thread, its twins."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.learner: Learner | None = None
        """The weights as they were loaded. It never wears an adapter itself: a twin made while it
        does would share it."""
        self.halted = threading.Event()
        """Set where the command is being interrupted: nothing more is begun."""
        self._found: dict[int, Learner] = {}
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
