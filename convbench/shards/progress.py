"""The display of a run's shards, read from its folder: one, wherever they are worked on."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from convbench.engine.progress import PLAIN_EVERY_S, clock
from convbench.errors import ConvbenchError
from convbench.store import Run
from convbench.store.shard_attempts import ShardStates, shard_states
from convbench.terminal import Terminal

LOOK_S = 1.0
SHARE = 20
"""A look at very many shards takes at most one part in so many of the time."""


class ShardProgress:
    """Shows how far the shards are on stderr while it is entered."""

    def __init__(
        self, run: Run, label: str, *, quiet: bool, console: Console | None = None
    ) -> None:
        self.run, self.label, self.quiet = run, label, quiet
        self.console = console or Terminal(stderr=True)
        self._began = time.monotonic()
        self._states: ShardStates | None = None
        self._before = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        self._look()
        self._before = self._states.done if self._states else 0
        if self.console.is_interactive:
            self._live = Live(get_renderable=self._text, console=self.console, refresh_per_second=2)
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.quiet:
            return
        self._ended.set()
        self._thread.join()
        self._look()
        if self._live is not None:
            self._live.stop()
        else:
            self._print()

    def _watch(self) -> None:
        wait = LOOK_S if self._live is not None else PLAIN_EVERY_S
        while not self._ended.wait(wait):
            began = time.monotonic()
            self._look()
            wait = max(wait, SHARE * (time.monotonic() - began))
            if self._live is None:
                self._print()

    def _look(self) -> None:
        try:
            self._states = shard_states(self.run.path)
        except ConvbenchError:  # raised again where the command ends
            return

    def _print(self) -> None:
        self.console.print(self._text(), markup=False, highlight=False, soft_wrap=True)

    def _text(self) -> Text:
        if self._states is None:
            return Text(f"{self.label} …")
        seconds = time.monotonic() - self._began
        return Text(f"{self.label}: {states_line(self._states, self._before, seconds)}")


def states_line(states: ShardStates, before: int, seconds: float) -> str:
    """Return `12/40 shards · 4 in work · 0:31 · ETA 1:10`: `before` of them were done when the work
    began, so many seconds ago."""
    parts = [f"{states.done}/{states.count} shards"]
    if states.working:
        parts.append(f"{len(states.working)} in work")
    parts.append(clock(seconds))
    finished = states.done - before
    if states.done < states.count and finished > 0:
        parts.append(f"ETA {clock((states.count - states.done) * seconds / finished)}")
    return " · ".join(parts)
