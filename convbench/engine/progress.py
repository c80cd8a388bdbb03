"""A command's status and its display: how far, how fast, at what cost, and what it waits for."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from convbench.errors import Usage
from convbench.util.terminal import Terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Display

PLAIN_EVERY_S = 15.0
"""Seconds between lines if the display cannot be redrawn."""


@dataclass(slots=True)
class Status:
    """Counters of one command. `total` is None if it is not known."""

    total: int | None = None
    """Jobs in all."""
    done: int = 0
    """Jobs that succeeded."""
    failed: int = 0
    """Jobs that ended in a recorded failure."""
    calls: int = 0
    """Calls answered."""
    replayed: int = 0
    """Calls answered by the journal."""
    cached: int = 0
    """Calls answered by the cache of earlier runs' replies."""
    retries: int = 0
    """Failed attempts that were, or are being, repeated."""
    retrying: int = 0
    """Calls that wait for another try now."""
    prompt_tokens: int = 0
    """Tokens of all prompts."""
    completion_tokens: int = 0
    """Tokens of all replies."""
    cost_usd: float = 0.0
    """Known dollars."""
    cost_unknown: bool = False
    """True once a call's price was not known."""
    note: str = ""
    """What it waits for, e.g. a server that starts."""
    paused: dict[str, float] = field(default_factory=dict)
    """Endpoint → `time.monotonic()` until which nothing is sent to it (Retry-After)."""
    started: float = field(default_factory=time.monotonic)
    """`time.monotonic()` at the start."""
    ready: float = field(default_factory=time.monotonic)
    """`time.monotonic()` from which calls could be made: the start, or when a model was ready."""

    def add_usage(self, usage: Usage, usd: float | None) -> None:
        """Add the reported tokens and the booked dollars of an attempt."""
        self.prompt_tokens += usage.prompt_tokens or 0
        self.completion_tokens += usage.completion_tokens or 0
        self.cost_usd += usd or 0.0
        self.cost_unknown = self.cost_unknown or usd is None


class Progress:
    """Context manager that shows a Status on stderr: a bar on a terminal, else a line now and
    then."""

    def __init__(
        self, status: Status, label: str, *, quiet: bool = False, console: Console | None = None
    ) -> None:
        self.status, self.label, self.quiet = status, label, quiet
        self.console = console or Terminal(file=sys.stderr)
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None
        self._display: Display | None = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        if self.console.is_interactive:
            self._display = _make_display(self.console)
            self._task = self._display.add_task(self.label[:20], total=None, numbers="")
            self._display.start()
        every = PLAIN_EVERY_S if self._display is None else 0.25
        self._ticker = threading.Thread(target=self._tick, args=(every,), daemon=True)
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
            self._show()
        if self._display is not None:
            self._display.stop()

    def print_line(self, line: str) -> None:
        """Print a line above the display, nothing if it is quiet."""
        if not self.quiet:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _tick(self, every: float) -> None:
        while not self._ended.wait(every):
            self._show()

    def _show(self) -> None:
        waits = "" if self._ended.is_set() else waiting_text(self.status)
        texts = [number_text(self.status), waits]
        if self._display is None:
            line = " · ".join(text for text in [count_text(self.status), *texts] if text)
            self.print_line(f"{self.label}: {line}")
            return
        ended = self.status.done + self.status.failed
        numbers = " · ".join(text for text in texts if text)
        fields: dict[str, Any] = {"completed": ended, "total": self.status.total}
        self._display.update(self._task, numbers=numbers, **fields)


def _make_display(console: Console) -> Display:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return Display(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[numbers]}", style="dim", markup=False, table_column=rest),
        console=console,
        expand=True,
        refresh_per_second=4,
    )


def count_text(status: Status) -> str:
    """Return ended jobs, rate and time left, such as `120/1500 · 3.2/s · ETA 7:11`, as far as they
    are known."""
    ended, rate = status.done + status.failed, job_rate(status)
    if not status.total:
        return f"{ended} · {rate:.1f}/s"
    left = status.total - ended
    eta = f" · ETA {clock_text(left / rate)}" if left and rate else ""
    return f"{ended}/{status.total} · {rate:.1f}/s{eta}"


def number_text(status: Status) -> str:
    """Return tokens, cost, failed jobs and elapsed time on one line, such as `34k tokens · $0.1200
    · 2 failed · 1:05`."""
    tokens = status.prompt_tokens + status.completion_tokens
    cost = f"${status.cost_usd:.4f}"
    if status.cost_unknown:
        cost = (f"{cost} + " if status.cost_usd else "") + "cost unknown"
    parts = [f"{short_number(tokens)} tokens", cost, f"{status.failed} failed"]
    parts += [f"{status.cached} from the cache"] if status.cached else []
    parts += [f"{status.replayed} replayed"] if status.replayed else []
    return " · ".join([*parts, clock_text(time.monotonic() - status.started)])


def waiting_text(status: Status) -> str:
    """Return what the command waits for now, joined by ` · `: its note, pauses of endpoints, calls
    that are tried again; empty if it waits for nothing."""
    parts = [status.note] if status.note else []
    for name, until in list(status.paused.items()):
        if (left := until - time.monotonic()) > 0:
            when = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
            parts.append(f"rate limit of {name[-30:]} until {when}")
    if status.retrying:
        parts.append(f"retrying {status.retrying} call{'' if status.retrying == 1 else 's'}")
    return " · ".join(parts)


def job_rate(status: Status) -> float:
    """Return ended jobs per second since the models were ready."""
    elapsed = time.monotonic() - status.ready
    return (status.done + status.failed) / elapsed if elapsed > 0 else 0.0


def clock_text(seconds: float) -> str:
    """Return seconds, cut to whole ones, as `1:02:03`, or `2:03` below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def short_number(count: int) -> str:
    """Return a count as `1.2M` from a million, `34k` from ten thousand, else the number itself."""
    if count >= 1_000_000:
        return f"{count / 1e6:.1f}M"
    return f"{count / 1000:.0f}k" if count >= 10_000 else str(count)
