"""What all workers of a run do, read from the run's folder: one display, wherever they are."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from convbench.engine.grants import Account, Ledger
from convbench.engine.progress import PLAIN_EVERY_S, clock, short
from convbench.errors import ConvbenchError
from convbench.net.tidy import count, dollars
from convbench.printable import printable
from convbench.store import Run, shards
from convbench.store.claims import Listed, listed
from convbench.terminal import Terminal

SHOWN = 8
"""Workers with a line of their own."""
SILENT_BEATS = 3.0
"""Times its usual pause after which a worker is shown as silent."""


@dataclass
class Seen:
    """One worker, by its own file."""

    name: str
    doing: str
    host: str
    shard: int | None
    shards: int
    done: int
    failed: int
    calls: int
    retries: int
    limited: int
    tokens: int
    usd: float
    unpriced: bool
    began: float
    at: float
    """When it wrote this, by its own clock."""

    @property
    def seconds(self) -> float:
        """Time that it has worked."""
        return max(0.0, self.at - self.began)

    @property
    def rate(self) -> float:
        """Conversations and verdicts a second."""
        return (self.done + self.failed) / self.seconds if self.seconds else 0.0


@dataclass
class Board:
    """The state of a run's workers."""

    listed: Listed
    account: Account
    workers: list[Seen] = field(default_factory=list)

    @property
    def active(self) -> list[Seen]:
        """Workers that have not ended, as they say."""
        return [one for one in self.workers if one.doing != "ended"]


def look(run: Run, since: float = 0.0) -> Board:
    """Return what the workers that wrote something after `since` (seconds since 1970) do."""
    found = [one for one in _seen(run) if one.at >= since]
    return Board(listed(run.path), Ledger(run.path / shards.FOLDER / shards.LEDGER).read(), found)


def _seen(run: Run) -> Iterator[Seen]:
    for file in shards.worker_files(run.path):
        said = shards.told(file)
        if said:
            yield Seen(
                name=printable(file.name)[:80], doing=printable(str(said.get("doing")))[:40],
                host=printable(str(said.get("host")))[:60], shard=count(said.get("shard")),
                shards=count(said.get("shards")) or 0, done=count(said.get("done")) or 0,
                failed=count(said.get("failed")) or 0, calls=count(said.get("calls")) or 0,
                retries=count(said.get("retries")) or 0, limited=count(said.get("limited")) or 0,
                tokens=count(said.get("tokens")) or 0, usd=dollars(said.get("usd")) or 0.0,
                unpriced=said.get("unpriced") is True, began=_time(said.get("began")),
                at=_time(said.get("at")),
            )  # fmt: skip


def _time(value: Any) -> float:
    found = dollars(value)
    return found if found is not None and math.isfinite(found) else 0.0


class Watching:
    """Shows the board on stderr while it is entered."""

    def __init__(
        self, run: Run, label: str, *, quiet: bool, console: Console | None = None
    ) -> None:
        self.run, self.label, self.quiet = run, label, quiet
        self.console = console or Terminal(stderr=True)
        self.since = time.time()
        self.began = time.monotonic()
        self._board: Board | None = None
        self._first: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        if self.console.is_interactive:
            self._live = Live(
                get_renderable=self.render, console=self.console, refresh_per_second=2
            )
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

    def _go(self) -> None:
        every = 1.0 if self._live is not None else PLAIN_EVERY_S
        while not self._ended.wait(every):
            self._look()
            if self._live is None:
                self._print()

    def _look(self) -> None:
        try:
            self._board = look(self.run, self.since)
        except ConvbenchError:  # said where the command ends
            return
        if self._first is None:
            self._first = len(self._board.listed.done)

    def _print(self) -> None:
        if self._board is not None:
            text = " · ".join([f"{self.label}: {counts(self._board)}", numbers(self._board)])
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def render(self) -> Group:
        """Return the display: shards done, numbers of all, a line for each of the first few."""
        board = self._board
        if board is None:
            return Group(Text(f"{self.label} …", style="bold"))
        top = Table.grid(padding=(0, 1), expand=False)
        bar = ProgressBar(total=board.listed.count, completed=len(board.listed.done), width=16)
        top.add_row(Text(self.label[:20], style="bold"), bar, counts(board))
        lines: list[RenderableType] = [
            top,
            Text("  " + numbers(board), style="dim", no_wrap=True, overflow="ellipsis"),
        ]
        active = board.active
        lines += [
            Text("  " + line_of(one), style="dim", no_wrap=True, overflow="ellipsis")
            for one in active[:SHOWN]
        ]
        if len(active) > SHOWN:
            lines.append(Text(f"  … and {len(active) - SHOWN} more workers", style="dim"))
        return Group(*lines)


def counts(board: Board) -> str:
    """Return `120/400 shards · 4 workers · 32.1/s · ETA 0:40`."""
    found, active = board.listed, board.active
    longest = max((one.seconds for one in board.workers), default=0.0)
    if not active:
        ended = sum(one.done + one.failed for one in board.workers)
        pace = f" · {ended / longest:.1f}/s" if longest else ""
        return f"{len(found.done)}/{found.count} shards{pace} · {clock(longest)}"
    rate = sum(one.rate for one in active)
    many = f"{len(active)} worker{'' if len(active) == 1 else 's'}"
    parts = [f"{len(found.done)}/{found.count} shards", many, f"{rate:.1f}/s"]
    finished = sum(one.shards for one in board.workers) - len(active)
    if finished > 0 and longest:
        left = (found.count - len(found.done)) / (finished / longest)
        parts.append(f"ETA {clock(left)}")
    return " · ".join(parts)


def numbers(board: Board) -> str:
    """Return what all workers did and spent in one line."""
    workers = board.workers
    parts = [
        f"{sum(one.done for one in workers):,} done",
        f"{sum(one.failed for one in workers)} failed",
        f"{short(sum(one.tokens for one in workers))} tokens",
        _cost(board),
    ]
    if retries := sum(one.retries for one in workers):
        parts.append(f"{retries} retries")
    if limited := sum(one.limited > 0 for one in workers):
        parts.append(f"{limited} held by rate limits")
    if board.listed.stopped:
        parts.append(f"{len(board.listed.stopped)} shards stopped")
    return " · ".join(parts)


def _cost(board: Board) -> str:
    """Return what these workers spent, and the cap of all that the run may."""
    usd, cap = sum(one.usd for one in board.workers), board.account.cap_usd
    if any(one.unpriced for one in board.workers) and not usd:
        return "cost unknown"
    return f"${usd:.4f}" + (
        "" if cap is None else f" (run ${board.account.spent_usd:.4f} of ${cap:g})"
    )


def line_of(one: Seen) -> str:
    """Return one worker's line."""
    where = "" if one.shard is None else f" shard {one.shard}"
    return f"{one.name[:28]}: {one.doing}{where} · {one.done} done · {one.rate:.1f}/s"
