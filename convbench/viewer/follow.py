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
from convbench.store.tail import FileStates, file_states, last_changed, read_ends
from convbench.viewer.index import Say, ViewIndex, build_index, distinct_runs
from convbench.viewer.rows import RowFiles

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


class GrowingIndex:
    """The index of some runs, which is rebuilt on request if they have grown."""

    def __init__(self, runs: Callable[[], Sequence[Run]], say: Say = lambda text: None) -> None:
        self._runs = runs
        self._lock = Lock()
        self._rest_until = 0.0
        self._rows = RowFiles()
        self._maker: RowMaker | None = None
        self._failed: tuple[list[FileStates], RunError] | None = None
        self._seen: list[FileStates] = []
        self._marks: list[dict[Path, tuple[int, str]]] = []
        self.version = 0
        """Increases with every new index."""
        self.partial: int | None = None
        """Number of conversations of each run if the index holds only the first ones; else None."""
        self.problem: str | None = None
        """Why the runs cannot be read now, if so; the index stays as it was."""
        now = distinct_runs(self._runs())
        if self._rows.missing_bytes(now) < LARGE:
            self._index_runs(now, say=say)
        else:
            few = f"the first {SHOWN} of each run"
            say(f"reading all conversations; until then {few} are shown")
            self._index_runs(now, SHOWN)
            self._maker = RowMaker(now)

    @property
    def making_s(self) -> float | None:
        """Return for how many seconds another process has been making rows; None if none is."""
        maker = self._maker
        return None if maker is None else time.monotonic() - maker.since

    def take_in(self) -> int:
        """Index what was appended to the runs, and return the version, which increases with every
        new index.

        While another caller does so, and for a while after each refresh, return the current version
        at once. An error is not raised: `problem` says it, and the index stays.
        """
        if time.monotonic() < self._rest_until or not self._lock.acquire(blocking=False):
            return self.version
        try:
            since = time.monotonic()
            self._refresh_index()
            now = time.monotonic()
            self._rest_until = now + EASE * (now - since)
            self.problem = None
        except (ConvbenchError, OSError) as error:
            self.problem = " ".join(str(error).split())
        finally:
            self._lock.release()
        return self.version

    def _refresh_index(self) -> None:
        runs = distinct_runs(self._runs())
        if self._maker is not None:
            if self._maker.is_running:
                return
            maker, self._maker = self._maker, None
            try:
                maker.raise_run_error()
            except RunError as error:
                self._failed = [file_states(run) for run in runs], error
                raise
            finally:
                maker.stop()
            self._index_runs(runs)
            return
        if self._failed is not None and self._failed[0] == [file_states(run) for run in runs]:
            raise self._failed[1]
        known = self.partial is None and not self.index.lost
        if known and _run_paths(runs) == _run_paths(self.index.runs):
            seen = [file_states(run) for run in runs]
            if seen == self._seen:
                return
            if [read_ends(run) for run in runs] == self._marks:  # compressed, or touched
                self._seen = seen
                return
        if self._rows.missing_bytes(runs) >= LARGE:
            self._maker = RowMaker(runs)
        else:
            self._index_runs(runs)

    def _index_runs(
        self, runs: Sequence[Run], first: int | None = None, say: Say = lambda text: None
    ) -> None:
        """Make the index; with `first` only of so many conversations of each run. The old one is
        not closed, since another thread may be using it: it is freed with its last reference."""
        seen, now = [file_states(run) for run in runs], [read_ends(run) for run in runs]
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


def _run_paths(runs: Sequence[Run]) -> list[Path]:
    return [run.path.resolve() for run in runs]


class RowMaker:
    """Another process that makes the rows of runs, so that the server stays responsive."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.since = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "convbench.viewer.follow"],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(
                orjson.dumps([os.fsdecode(path) for path in _run_paths(runs)])
            )
            self._process.stdin.close()

    @property
    def is_running(self) -> bool:
        """Return True while it works."""
        return self._process.poll() is None

    def raise_run_error(self) -> None:
        """Raise RunError with its message if it ended because the runs are damaged; otherwise do
        nothing.

        After any other failure (no disk space for sidecars, a kill) the rows are made in this
        process.
        """
        if self._process.returncode == WRONG:
            self._output.seek(0)
            raise RunError(self._output.read().decode(errors="replace").strip())

    def stop(self) -> None:
        """Kill the process if it runs, and close its output."""
        if self.is_running:
            self._process.kill()  # DuckDB handles no other signal within a block of rows
            self._process.wait()
        self._output.close()


def _make_rows() -> None:
    try:
        RowFiles().collect_rows(
            [Run.open(Path(path)) for path in orjson.loads(sys.stdin.buffer.read())]
        )
    except ConvbenchError as error:
        print(" ".join(str(error).split()), flush=True)
        sys.exit(WRONG)


def run_status(growing: GrowingIndex) -> dict[str, Any]:
    """Index what was appended, and return the status for the page: version, problem, making_s,
    first and growing.

    `making_s` is for how many seconds an index is being made, `first` how many conversations of
    each run are shown until then; both are None otherwise. `growing` has counts, pace a minute and
    cost of each run whose files changed in the last two minutes.
    """
    version = growing.take_in()
    index = growing.index
    return {
        "version": version,
        "problem": growing.problem,
        "making_s": growing.making_s,
        "first": growing.partial,
        "growing": [
            status
            for number in range(0 if index.lost else len(index.runs))
            if (status := _growing_status(index, number)) is not None
        ],
    }


def _growing_status(index: ViewIndex, number: int) -> dict[str, Any] | None:
    run = index.runs[number]
    since_s = time.time() - last_changed(run)
    if since_s > RECENT_S:
        return None
    since = (datetime.now(UTC) - timedelta(seconds=PACE_S)).isoformat()
    counts = index.query_row(
        "SELECT count(*) AS n, count(failure) AS failed, "
        "count(*) FILTER (WHERE ended >= ?) AS new, "
        "min(ended) FILTER (WHERE ended >= ?) AS first, "
        "sum(cost_usd) AS usd FROM conversations WHERE run_no = ?",
        [since, since, number],
    )
    judged = index.query_row(
        "SELECT count(*) AS n, count(*) FILTER (WHERE ended >= ?) AS new, sum(cost_usd) AS usd "
        "FROM raw.verdicts WHERE run_no = ?",
        [since, number],
    )
    splits = index.query_rows(
        "SELECT split, count(*) AS n FROM raw.examples WHERE run_no = ? GROUP BY split", [number]
    )
    planned = run.manifest.planned_count({row["split"]: row["n"] for row in splits})
    pace = _pace_per_minute(counts["new"], counts["first"])
    left = max(0, planned - counts["n"] + counts["failed"])
    return {
        "run_no": number,
        "conversations": counts["n"],
        "failed": counts["failed"],
        "planned": planned,
        "verdicts": judged["n"],
        "pace": pace,
        "judged_pace": judged["new"] / PACE_S * 60,
        "usd": None if counts["usd"] is None else counts["usd"] + (judged["usd"] or 0.0),
        "left_s": None if not pace or not left else left / pace * 60,
        "since_s": since_s,
    }


def _pace_per_minute(new: int, first: str | None) -> float:
    """Return conversations a minute; `new` is their number since `first`, an ISO time."""
    if not new or first is None:
        return 0.0
    began = datetime.fromisoformat(first)
    began = began if began.tzinfo else began.replace(tzinfo=UTC)
    return 60 * new / max(10.0, (datetime.now(UTC) - began).total_seconds())


if __name__ == "__main__":
    _make_rows()
