"""A command's status and its display: how far, how fast, at what cost, and what it waits for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from convbench.engine.budget import Budget, Spend
from convbench.errors import Usage
from convbench.util.terminal import Terminal

PLAIN_EVERY_S = 15.0
"""Seconds between lines if the display cannot be redrawn."""


@dataclass(slots=True)
class Status:
    """Counters of one command: jobs in `total` (None: not known), `done` or `failed`; calls
    `replayed` from the journal, found in the cache, or that wait for another try; tokens and known
    dollars."""

    total: int | None = None
    done: int = 0
    failed: int = 0
    replayed: int = 0
    cached: int = 0
    retrying: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    cost_unknown: bool = False
    note: str = ""
    """What it waits for, e.g. a server that starts."""
    paused: dict[str, float] = field(default_factory=dict)
    """Endpoint → `time.monotonic()` until which nothing is sent to it (Retry-After)."""
    started: float = field(default_factory=time.monotonic)
    ready: float = field(default_factory=time.monotonic)
    """`time.monotonic()` at the start, and from which calls could be made."""

    def add_usage(self, usage: Usage, usd: float | None) -> None:
        """Add the reported tokens and the booked dollars of an attempt."""
        self.tokens += (usage.prompt_tokens or 0) + (usage.completion_tokens or 0)
        self.cost_usd += usd or 0.0
        self.cost_unknown = self.cost_unknown or usd is None


@contextmanager
def show_progress(
    status: Status, label: str, *, quiet: bool = False, console: Console | None = None
) -> Iterator[None]:
    """Show a status on stderr during this context: a bar on a terminal, else a line now and then,
    nothing if it is quiet."""
    if quiet:
        yield
        return
    console = console or Terminal(file=sys.stderr)
    display = _make_display(console, label) if console.is_interactive else None
    over = threading.Event()

    def show() -> None:
        ended, texts = status.done + status.failed, " · ".join(_texts(status, not over.is_set()))
        if display is not None:
            task = display.task_ids[0]
            display.update(task, completed=ended, total=status.total, texts=texts)
            return
        rate = ended / max(time.monotonic() - status.ready, 1e-9)
        left = (status.total or ended) - ended
        eta = f" · ETA {clock_text(left / rate)}" if left and ended else ""
        of = f"/{status.total}" if status.total else ""
        line = f"{label}: {ended}{of} · {rate:.1f}/s{eta} · {texts}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def tick() -> None:
        while not over.wait(PLAIN_EVERY_S if display is None else 0.25):
            show()

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()
        show()
        if display is not None:
            display.stop()


def _make_display(console: Console, label: str) -> Any:
    from rich import progress
    from rich.table import Column

    whole, rest = Column(no_wrap=True), Column(ratio=1, no_wrap=True, overflow="ellipsis")
    display = progress.Progress(
        progress.TextColumn("{task.description}", table_column=whole),
        progress.BarColumn(bar_width=16),
        progress.MofNCompleteColumn(table_column=whole),
        progress.TimeRemainingColumn(table_column=whole),
        progress.TextColumn("{task.fields[texts]}", "dim", markup=False, table_column=rest),
        console=console,
        expand=True,
        refresh_per_second=4,
    )
    display.add_task(label[:20], total=None, texts="")
    display.start()
    return display


def _texts(status: Status, waits: bool) -> Iterator[str]:
    """Yield tokens, cost, failed jobs and elapsed time: `34k tokens`, `$0.1200`, … and with `waits`
    what the command waits for now."""
    tokens = f"{status.tokens}" if status.tokens < 10_000 else f"{status.tokens / 1000:.0f}k"
    yield f"{tokens} tokens"
    known = f"${status.cost_usd:.4f}" if status.cost_usd or not status.cost_unknown else ""
    yield " + ".join(filter(None, [known, "cost unknown" * status.cost_unknown]))
    yield f"{status.failed} failed"
    for count, what in ((status.cached, "from the cache"), (status.replayed, "replayed")):
        if count:
            yield f"{count} {what}"
    yield clock_text(time.monotonic() - status.started)
    if waits and status.note:
        yield status.note
    for name, until in list(status.paused.items()) if waits else ():
        if (left := until - time.monotonic()) > 0:
            when = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
            yield f"rate limit of {name[-30:]} until {when}"
    if waits and status.retrying:
        yield f"retrying {status.retrying} calls"


def clock_text(seconds: float) -> str:
    """Return seconds, cut to whole ones, as `1:02:03`, or `2:03` below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_spend(ledger: Budget) -> str:
    """Return the spend on one line: dollars, tokens, what was spent before, failed and assumed
    attempts. It is empty without an attempt, and if nothing costs anything and nothing is limited.
    """
    spent, before = ledger.all, ledger.before
    if not spent.attempts or not (spent.usd or ledger.unpriced or ledger.has_limit):
        return ""
    limit = "" if ledger.usd is None else f" of ${ledger.usd:g}"
    known = f"${spent.usd:.4f}{limit}" if spent.usd or not ledger.unpriced else ""
    parts = [" + ".join(filter(None, [known, "cost unknown" * ledger.unpriced]))]
    parts += [f"{spent.tokens:,}{'' if ledger.tokens is None else f' of {ledger.tokens:,}'} tokens"]
    parts += [f"before this command {_used(before)}"] if before.tokens or before.usd else []
    assumed = "with unreported usage, counted at the most that it may be:"
    for lost, what in ((ledger.lost, "without a usable reply"), (ledger.assumed, assumed)):
        if count := lost.attempts:
            parts.append(f"{count} attempt{'s'[: count > 1]} {what} {_used(lost)}")
    return " · ".join(parts)


def _used(spend: Spend) -> str:
    return f"${spend.usd:.4f}" if spend.usd else f"{spend.tokens:,} tokens"
