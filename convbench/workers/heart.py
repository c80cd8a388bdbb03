"""A worker's heartbeat: a file that it writes again and again, with what it does."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import orjson

from convbench.engine.status import Status
from convbench.errors import ConvbenchError
from convbench.store import Run, shards
from convbench.store.claims import this_process
from convbench.store.jsonl import write_whole

BEATS = 6
"""Heartbeats in the time of a lease."""
OFTEN_S = 5.0
"""Seconds between two at most."""


def new_name() -> str:
    """Return a name that no other worker has."""
    process = this_process()
    host = re.sub(r"[^A-Za-z0-9_-]", "-", process.host)[:40] or "host"
    return f"{host}-{process.pid}-{secrets.token_hex(3)}"


class Heart:
    """Says that a worker is there, from a thread of its own."""

    def __init__(
        self, run: Run, name: str, lease_s: float, spent: Callable[[], tuple[int, float, bool]]
    ) -> None:
        self.name = name
        self.statuses: list[Status] = []
        """Counters of all that made calls; `calling` adds them."""
        self.doing = "waits"
        self.shard: int | None = None
        self.shards = 0
        """Shards that this worker has done something for."""
        self._file = run.path / shards.FOLDER / shards.WORKERS / name
        self._every = min(OFTEN_S, lease_s / BEATS)
        self._spent = spent
        self._beat = 0
        self._began = time.time()
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._go, daemon=True)

    def __enter__(self) -> Self:
        self.beat()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.doing, self.shard = "ended", None
        with suppress(ConvbenchError):
            self.beat()

    def beat(self) -> None:
        """Write the file."""
        with self._writing:
            self._beat += 1
            write_whole(self._file, orjson.dumps(self._said()) + b"\n")

    def _go(self) -> None:
        while not self._ended.wait(self._every):
            with suppress(ConvbenchError):  # a disk that is full for a while
                self.beat()

    def _said(self) -> dict[str, Any]:
        process = this_process()
        now = time.monotonic()
        found = list(self.statuses)
        tokens, usd, unpriced = self._spent()
        ends = [end for status in found for end in status.endpoints.values()]
        return {
            "beat": self._beat, "host": process.host, "pid": process.pid, "doing": self.doing,
            "shard": self.shard, "shards": self.shards, "began": self._began, "at": time.time(),
            "done": sum(one.done for one in found), "failed": sum(one.failed for one in found),
            "calls": sum(one.calls for one in found),
            "replayed": sum(one.replayed for one in found),
            "retries": sum(one.retries for one in found),
            "tokens": tokens, "usd": usd, "unpriced": unpriced,
            "limited": sum(end.limit < end.highest or end.paused_until > now for end in ends[-8:]),
        }  # fmt: skip
