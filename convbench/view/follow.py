"""Follow runs that grow: rebuild their index when records are appended, and report their status.

A new index is made while the old one answers. The rows of large runs are made by another process;
at the very first start the first conversations of each run are shown until it is done.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from convbench.errors import ConvbenchError, RunError
from convbench.store import Run
from convbench.store.shard_attempts import shard_states
from convbench.store.shards import is_sharded
from convbench.store.tail import Signs, changed, marks, signs
from convbench.view.index import Index, Say, build_index, distinct
from convbench.view.rows import Rows

EASE = 4.0
"""After a refresh of t seconds the next one begins no sooner than EASE * t seconds later."""
LARGE = 64 << 20
"""Bytes of records from which on another process makes their rows."""
SHOWN = 200
"""Conversations of each run that are shown while that process works."""
WRONG = 1
"""Exit code of that process if the runs cannot be read."""
RECENT_S = 120.0
"""A run counts as growing if its files changed within so many seconds."""
PACE_S = 300.0
"""Seconds over which the pace is measured."""


class Growing:
    """The index of some runs, which is rebuilt on request if they have grown."""

    def __init__(self, runs: Callable[[], Sequence[Run]], say: Say = lambda text: None) -> None:
        self._runs = runs
        self._lock = Lock()
        self._rest_until = 0.0
        self._rows = Rows()
        self._maker: Maker | None = None
        self._failed: tuple[list[Signs], RunError] | None = None
        self._seen: list[Signs] = []
        self._marks: list[dict[Path, tuple[int, str]]] = []
        self.version = 0
        """Increases with every new index."""
        self.partial: int | None = None
        """Number of conversations of each run if the index holds only the first ones; else None."""
        self.problem: str | None = None
        """Why the runs cannot be read now, if so; the index stays as it was."""
        now = distinct(self._runs())
        if self._rows.missing(now) < LARGE:
            self._index_runs(now, say=say)
        else:
            few = f"the first {SHOWN} of each run"
            say(f"reading all conversations; until then {few} are shown")
            self._index_runs(now, SHOWN)
            self._maker = Maker(now)

    @property
    def making_s(self) -> float | None:
        """Return for how many seconds another process has been making rows, or None."""
        maker = self._maker
        return None if maker is None else time.monotonic() - maker.since

    def look(self) -> int:
        """Index what was appended to the runs, and return the version. While one caller does so,
        others get the current version at once."""
        if time.monotonic() < self._rest_until or not self._lock.acquire(blocking=False):
            return self.version
        try:
            since = time.monotonic()
            self._refresh()
            now = time.monotonic()
            self._rest_until = now + EASE * (now - since)
            self.problem = None
        except (ConvbenchError, OSError) as error:
            self.problem = " ".join(str(error).split())
        finally:
            self._lock.release()
        return self.version

    def _refresh(self) -> None:
        runs = distinct(self._runs())
        if self._maker is not None:
            if self._maker.running:
                return
            maker, self._maker = self._maker, None
            try:
                maker.check()
            except RunError as error:
                self._failed = [signs(run) for run in runs], error
                raise
            finally:
                maker.stop()
            self._index_runs(runs)
            return
        if self._failed is not None and self._failed[0] == [signs(run) for run in runs]:
            raise self._failed[1]
        known = self.partial is None and not self.index.lost
        if known and _paths(runs) == _paths(self.index.runs):
            seen = [signs(run) for run in runs]
            if seen == self._seen:
                return
            if [marks(run) for run in runs] == self._marks:  # compressed, or touched
                self._seen = seen
                return
        if self._rows.missing(runs) >= LARGE:
            self._maker = Maker(runs)
        else:
            self._index_runs(runs)

    def _index_runs(
        self, runs: Sequence[Run], first: int | None = None, say: Say = lambda text: None
    ) -> None:
        """Make the index; with `first` only of so many conversations of each run. The old one is
        not closed, since another thread may be using it: it is freed with its last reference."""
        seen, now = [signs(run) for run in runs], [marks(run) for run in runs]
        try:
            self.index = build_index(runs, say, self._rows, first)
        except RunError as error:
            self._failed = seen, error
            raise
        self._seen, self._marks, self._failed, self.partial = seen, now, None, first
        self.version += 1

    def close(self) -> None:
        """Stop the other process and close the index."""
        if self._maker is not None:
            self._maker.stop()
        self.index.close()


def _paths(runs: Sequence[Run]) -> list[Path]:
    return [run.path.resolve() for run in runs]


class Maker:
    """Another process that makes the rows of runs, so that the server stays responsive."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.since = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "convbench.view.follow"],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(orjson.dumps([os.fsdecode(path) for path in _paths(runs)]))
            self._process.stdin.close()

    @property
    def running(self) -> bool:
        """Return True while it works."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise RunError if it found the runs damaged. After any other failure (no disk space for
        sidecars, a kill) the rows are made in this process."""
        if self._process.returncode == WRONG:
            self._output.seek(0)
            raise RunError(self._output.read().decode(errors="replace").strip())

    def stop(self) -> None:
        """Kill it if it runs."""
        if self.running:
            self._process.kill()  # DuckDB handles no other signal within a block of rows
            self._process.wait()
        self._output.close()


def _main() -> None:
    try:
        Rows().collect([Run.open(Path(path)) for path in orjson.loads(sys.stdin.buffer.read())])
    except ConvbenchError as error:
        print(" ".join(str(error).split()), flush=True)
        sys.exit(WRONG)


def pulse(growing: Growing) -> dict[str, Any]:
    """Index what was appended, and return the status for the page: version, problem, the growing
    runs, for how many seconds an index is being made, and how many conversations of each run are
    shown until then."""
    version = growing.look()
    index = growing.index
    return {
        "version": version,
        "problem": growing.problem,
        "making_s": growing.making_s,
        "first": growing.partial,
        "growing": [
            found
            for number in range(0 if index.lost else len(index.runs))
            if (found := _growing(index, number)) is not None
        ],
    }


def _growing(index: Index, number: int) -> dict[str, Any] | None:
    run = index.runs[number]
    since_s = time.time() - changed(run)
    if since_s > RECENT_S:
        return None
    since = (datetime.now(UTC) - timedelta(seconds=PACE_S)).isoformat()
    found = index.one(
        "SELECT count(*) AS n, count(failure) AS failed, "
        "count(*) FILTER (WHERE ended >= ?) AS new, "
        "min(ended) FILTER (WHERE ended >= ?) AS first, "
        "sum(cost_usd) AS usd FROM conversations WHERE run_no = ?",
        [since, since, number],
    )
    judged = index.one(
        "SELECT count(*) AS n, count(*) FILTER (WHERE ended >= ?) AS new, sum(cost_usd) AS usd "
        "FROM raw.verdicts WHERE run_no = ?",
        [since, number],
    )
    splits = index.ask(
        "SELECT split, count(*) AS n FROM raw.examples WHERE run_no = ? GROUP BY split", [number]
    )
    wanted = run.manifest.planned({row["split"]: row["n"] for row in splits})
    pace = _pace(found["new"], found["first"])
    left = max(0, wanted - found["n"] + found["failed"])
    shards = shard_states(run.path) if is_sharded(run.path) else None
    line = None
    if shards is not None and shards.alive:
        line = f"{shards.done}/{shards.count} shards · {len(shards.alive)} in work"
    return {
        "shards": line,
        "run_no": number,
        "conversations": found["n"],
        "failed": found["failed"],
        "planned": wanted,
        "verdicts": judged["n"],
        "pace": pace,
        "judged_pace": judged["new"] / PACE_S * 60,
        "usd": None if found["usd"] is None else found["usd"] + (judged["usd"] or 0.0),
        "left_s": None if not pace or not left else left / pace * 60,
        "since_s": since_s,
    }


def _pace(new: int, first: str | None) -> float:
    """Return conversations a minute; `new` is their number since `first`, an ISO time."""
    if not new or first is None:
        return 0.0
    began = datetime.fromisoformat(first)
    began = began if began.tzinfo else began.replace(tzinfo=UTC)
    return 60 * new / max(10.0, (datetime.now(UTC) - began).total_seconds())


if __name__ == "__main__":
    _main()
