"""The runs that the viewer shows: those that a user names, or a folder of runs to choose from, with
counts of each and the indexes of the open ones."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from convbench.errors import RunError
from convbench.store import Run, all_runs, find_run
from convbench.store.overview import read_overview
from convbench.store.tail import FileStates, file_states, last_changed
from convbench.viewer.follow import EASE, GrowingIndex
from convbench.viewer.index import Say, ViewIndex, build_index

OPEN = 4
"""Selections of runs whose indexes stay in memory."""
MOST = 100
"""Largest number of runs that are opened together."""


@dataclass(frozen=True, slots=True)
class _CountedRun:
    """The counts of a run and the state of its files when they were taken."""

    states: list[FileStates]
    """State of its files and its children's."""
    counts: dict[str, Any]
    until: float
    """Earliest `time.monotonic()` at which it is counted again."""


class Library:
    """The runs in a folder, with the indexes of the open ones."""

    def __init__(self, root: Path, say: Say = lambda text: None) -> None:
        self.root, self._say = root, say
        self._open: dict[tuple[str, ...], GrowingIndex] = {}
        self._lock = threading.Lock()
        self._counted: dict[str, _CountedRun] = {}
        self._counting = threading.Lock()

    def list_runs(self) -> list[Run]:
        """Return the runs directly in the folder, newest first, without symbolic links; empty if
        there are none."""
        return all_runs(self.root)[::-1]

    def run_rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, newest first: name, run, kind, task, protocol, mode, created,
        policy, and when its files changed."""
        return [self._run_row(run) for run in self.list_runs()]

    def _run_row(self, run: Run) -> dict[str, Any]:
        m = run.manifest
        return {
            "name": run.path.name,
            "run": m.id,
            "kind": m.kind,
            "task": m.task.name,
            "protocol": m.protocol.name,
            "mode": m.mode,
            "created": m.created,
            "policy": m.policy_member.model,
            "changed": last_changed(run),
        }

    def run_counts(self, name: str) -> dict[str, Any]:
        """Return the counts of a run by its folder's name: conversations, failed, planned, judges,
        evals, usd, tags, note and `changed`, when the counted files changed.

        If the files have changed it is counted again, by one caller at a time and no sooner than 4
        times as long after as the last count took; until then the old counts are returned. Raise
        RunError for an unknown name.
        """
        with self._counting:
            run = self._open_run(name)
            now = [file_states(member) for member in (run, *run.child_runs())]
            counted = self._counted.get(name)
            if counted is None or (counted.states != now and time.monotonic() >= counted.until):
                since, at = time.monotonic(), last_changed(run)
                counts = {**_count_run(run), "changed": at}
                ended = time.monotonic()
                counted = self._counted[name] = _CountedRun(
                    now, counts, ended + EASE * (ended - since)
                )
            return counted.counts

    def _open_run(self, name: str) -> Run:
        """Return a run in the folder by its name, which is not a path. Raises RunError if there is
        none."""
        for path in self.root.iterdir():
            if path.name == name and not path.is_symlink() and (path / "run.json").exists():
                return Run.open(path)
        raise RunError(f"{name}: found no such run in {self.root}")

    def open_index(self, chosen: str) -> GrowingIndex:
        """Return the index of the runs named in an address: quoted names, separated by commas; at
        most 100 of them.

        The four indexes used last stay open; others are closed. Raise RunError for an unknown name
        or a damaged run.
        """
        names = tuple(dict.fromkeys(unquote(part) for part in chosen.split(",")))[:MOST]
        with self._lock:
            growing = self._open.pop(names, None)
            if growing is None:
                while len(self._open) >= OPEN:
                    self._open.pop(next(iter(self._open))).close()
                growing = GrowingIndex(lambda: self._open_members(names), self._say)
            self._open[names] = growing
        return growing

    def close(self) -> None:
        """Close every open index."""
        with self._lock:
            for growing in self._open.values():
                growing.close()

    def _open_members(self, names: Sequence[str]) -> list[Run]:
        return with_children([self._open_run(name) for name in names])


def with_children(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, each followed by its child runs."""
    return [member for run in runs for member in (run, *run.child_runs())]


def _count_run(run: Run) -> dict[str, Any]:
    summary = read_overview(run)
    splits = Counter(question.split for question in run.questions.values())
    return {
        "conversations": summary.conversations,
        "failed": summary.failed,
        "judges": list(summary.judges),
        "evals": summary.evals,
        "usd": summary.usd,
        "planned": run.manifest.planned_count(splits),
    }


HERE = Path("runs")
"""Default folder of runs."""


def library_or_index(paths: Sequence[Path], say: Callable[[str], None]) -> GrowingIndex | Library:
    """Return a library if there is one path and it is a folder of runs, else the index of the runs
    at these paths.

    Without a path it is a library of the folder `runs` if that has several runs, else the index of
    the newest run. `say` gets a line for each step. Raise RunError if a run is not found or
    damaged.
    """
    folders = [path for path in paths or [HERE] if is_folder(path)]
    if folders and len(paths) <= 1 and (paths or len(all_runs(HERE)) > 1):
        return Library(folders[0], say)
    return GrowingIndex(lambda: open_members(paths), say)


def is_folder(path: Path) -> bool:
    """Return True if a path is a folder with runs directly in it and is no run itself."""
    return not (path / "run.json").exists() and path.is_dir() and bool(all_runs(path))


def open_members(paths: Sequence[Path]) -> list[Run]:
    """Return the runs at these paths and in these folders of runs, each followed by its child runs;
    without a path the newest run.

    Raise RunError if there is no run at a path.
    """
    runs: list[Run] = []
    for path in paths:
        runs += all_runs(path) if is_folder(path) else [find_run(path)]
    return with_children(runs or [find_run(None)])


def index_runs(paths: Sequence[Path], say: Callable[[str], None]) -> ViewIndex:
    """Return the index of the runs at these paths with their child runs, or of the newest run;
    `say` gets a line for each step."""
    return build_index(open_members(paths), say)
