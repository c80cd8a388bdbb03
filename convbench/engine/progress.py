"""A command's status and its display: how far, how fast, at what cost, and what it waits for."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.text import Text

from convbench.errors import Usage
from convbench.util.terminal import Terminal

if TYPE_CHECKING:
    from rich.live import Live


@dataclass(slots=True)
class EndpointState:
    """Concurrency and pause of one endpoint."""

    limit: int
    """Calls allowed at once now."""
    highest: int
    """Most calls allowed at once."""
    in_flight: int = 0
    """Calls in flight."""
    paused_until: float = 0.0
    """`time.monotonic()` until which nothing is sent (Retry-After)."""


@dataclass(slots=True)
class Status:
    """Counters of one command. `total` is None if it is not known."""

    total: int | None = None
    """Jobs in all."""
    done: int = 0
    """Jobs that succeeded, including those skipped on resume."""
    skipped: int = 0
    """Jobs that were already complete on resume; they do not count in the rate."""
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
    endpoints: dict[str, EndpointState] = field(default_factory=dict)
    """State of each endpoint by its name."""
    started: float = field(default_factory=time.monotonic)
    """`time.monotonic()` at the start."""
    ready: float = field(default_factory=time.monotonic)
    """`time.monotonic()` from which calls could be made: the start, or when a model was ready."""

    def add_usage(self, usage: Usage, usd: float | None) -> None:
        """Add the reported tokens and the booked dollars of an attempt; a missing count adds 0.

        Dollars of None make `cost_unknown` True for good.
        """
        self.prompt_tokens += usage.prompt_tokens or 0
        self.completion_tokens += usage.completion_tokens or 0
        self.cost_usd += usd or 0.0
        self.cost_unknown = self.cost_unknown or usd is None


PLAIN_EVERY_S = 15.0
"""Seconds between lines if the display cannot be redrawn."""
LONGEST = 30
"""Most characters of an endpoint's name."""


class Progress:
    """Context manager that shows a Status on stderr; as lines if that is not a terminal, or one
    that cannot move its cursor (TERM=dumb)."""

    def __init__(
        self, status: Status, label: str, *, quiet: bool = False, console: Console | None = None
    ) -> None:
        self.status, self.label, self.quiet = status, label, quiet
        self.console = console or Terminal(file=sys.stderr)
        self._live: Live | None = None
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        if self.console.is_interactive:
            from rich.live import Live

            self._live = Live(
                get_renderable=self.render, console=self.console, refresh_per_second=4
            )
            self._live.start()
        else:
            self._ticker = threading.Thread(target=self._print_regularly, daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
        if self._ticker is not None:
            self._ticker.join()
            self._print_status()

    def print_line(self, line: str) -> None:
        """Print a line above the display, nothing if it is quiet."""
        if not self.quiet:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def render(self) -> Group:
        """Return the display of the current status: a bar with counts, numbers, and what it waits
        for, if anything."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        status = self.status
        top = Table.grid(padding=(0, 1), expand=False)
        ended = status.done + status.failed
        bar = ProgressBar(total=status.total or None, completed=ended, width=16)
        top.add_row(Text(self.label[:20], style="bold"), bar, count_text(status))
        lines: list[RenderableType] = [
            top,
            Text("  " + number_text(status), style="dim", no_wrap=True, overflow="ellipsis"),
        ]
        if waits := self._waiting_text():
            lines.append(Text("  " + waits, style="yellow", no_wrap=True, overflow="ellipsis"))
        return Group(*lines)

    def _waiting_text(self) -> str:
        return "" if self._ended.is_set() else waiting_text(self.status)

    def _print_regularly(self) -> None:
        while not self._ended.wait(PLAIN_EVERY_S):
            self._print_status()

    def _print_status(self) -> None:
        parts = [
            f"{self.label}: {count_text(self.status)}",
            number_text(self.status),
            self._waiting_text(),
        ]
        self.print_line(" · ".join(part for part in parts if part))


def count_text(status: Status) -> str:
    """Return ended jobs, rate and time left, such as `120/1500 · 3.2/s · ETA 7:11`.

    Without a total (None or 0) it is `120 · 3.2/s`. ETA is left out before the first job of this
    command and after the last one.
    """
    ended = status.done + status.failed
    if not status.total:
        return f"{ended} · {job_rate(status):.1f}/s"
    text = f"{ended}/{status.total} · {job_rate(status):.1f}/s"
    left = status.total - ended
    return text + (
        f" · ETA {clock_text(left / job_rate(status))}" if left and job_rate(status) else ""
    )


def number_text(status: Status) -> str:
    """Return tokens, cost, failed jobs and elapsed time on one line, such as `34k tokens · $0.1200
    · 2 failed · 1:05`.

    Calls from the cache and replayed ones are named if there are any.
    """
    tokens = status.prompt_tokens + status.completion_tokens
    parts = [f"{short_number(tokens)} tokens", cost_text(status), f"{status.failed} failed"]
    if status.cached:
        parts.append(f"{status.cached} from the cache")
    if status.replayed:
        parts.append(f"{status.replayed} replayed")
    parts.append(f"{clock_text(time.monotonic() - status.started)}")
    return " · ".join(parts)


def waiting_text(status: Status) -> str:
    """Return what the command waits for now, joined by ` · `; empty if it waits for nothing.

    That is its note, paused endpoints, reduced concurrency and calls that are tried again.
    """
    parts = [status.note] if status.note else []
    for name, endpoint in status.endpoints.items():
        shown = name if len(name) <= LONGEST else "…" + name[1 - LONGEST :]
        of = f" of {shown}" if len(status.endpoints) > 1 else ""
        pause = endpoint.paused_until - time.monotonic()
        if pause > 0:
            until = time.strftime("%H:%M:%S", time.localtime(time.time() + pause))
            parts.append(f"rate limit{of} until {until}")
        if endpoint.limit < endpoint.highest:
            parts.append(f"concurrency {endpoint.limit} of {endpoint.highest}")
    if status.retrying:
        parts.append(f"retrying {status.retrying} call{'' if status.retrying == 1 else 's'}")
    return " · ".join(parts)


def cost_text(status: Status) -> str:
    """Return the dollars so far, such as `$0.1200`; `$0.1200 + cost unknown` once a price was not
    known.

    Without known dollars that is `cost unknown`.
    """
    if status.cost_unknown:
        known = f"${status.cost_usd:.4f} + " if status.cost_usd else ""
        return f"{known}cost unknown"
    return f"${status.cost_usd:.4f}"


def job_rate(status: Status) -> float:
    """Return ended jobs per second since the models were ready, without those skipped on resume.

    It is 0.0 if no time has passed.
    """
    ended = status.done + status.failed - status.skipped
    elapsed = time.monotonic() - status.ready
    return ended / elapsed if elapsed > 0 else 0.0


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
