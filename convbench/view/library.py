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
from convbench.store.overview import overview
from convbench.store.tail import Signs, changed, signs
from convbench.view.follow import EASE, Growing
from convbench.view.index import Index, Say, build_index

OPEN = 4
"""Selections of runs whose indexes stay in memory."""
MOST = 100
"""Largest number of runs that are opened together."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts of a run and the state of its files when they were taken."""

    signs: list[Signs]
    """State of its files and its children's."""
    found: dict[str, Any]
    until: float
    """Earliest `time.monotonic()` at which it is counted again."""


class Library:
    """The runs in a folder, with the indexes of the open ones."""

    def __init__(self, root: Path, say: Say = lambda text: None) -> None:
        self.root, self._say = root, say
        self._open: dict[tuple[str, ...], Growing] = {}
        self._lock = threading.Lock()
        self._counted: dict[str, _Counted] = {}
        self._counting = threading.Lock()

    def runs(self) -> list[Run]:
        """Return the runs in the folder, newest first."""
        return all_runs(self.root)[::-1]

    def listing(self) -> list[dict[str, Any]]:
        """Return one row for each run: facts of its manifest, and when its files changed."""
        return [self._row(run) for run in self.runs()]

    def _row(self, run: Run) -> dict[str, Any]:
        m = run.manifest
        return {
            "name": run.path.name,
            "run": m.id,
            "kind": m.kind,
            "task": m.task.name,
            "protocol": m.protocol.name,
            "mode": m.mode,
            "created": m.created,
            "policy": m.cast[m.protocol.policy].model if m.protocol.policy in m.cast else None,
            "changed": changed(run),
        }

    def counts(self, name: str) -> dict[str, Any]:
        """Return the counts of a run, and when the files changed from which they were taken. If the
        files have changed it is counted again, by one caller at a time and no sooner than EASE
        times the last count took, since a large run is read from its beginning each time."""
        with self._counting:
            run = self._run(name)
            now = [signs(one) for one in (run, *run.children())]
            kept = self._counted.get(name)
            if kept is None or (kept.signs != now and time.monotonic() >= kept.until):
                since, at = time.monotonic(), changed(run)
                found = {**_counts(run), "changed": at}
                ended = time.monotonic()
                kept = self._counted[name] = _Counted(now, found, ended + EASE * (ended - since))
            return kept.found

    def _run(self, name: str) -> Run:
        """Return a run in the folder by its name, which is not a path. Raises RunError if there is
        none."""
        for path in self.root.iterdir():
            if path.name == name and not path.is_symlink() and (path / "run.json").exists():
                return Run.open(path)
        raise RunError(f"{name}: found no such run in {self.root}")

    def open(self, chosen: str) -> Growing:
        """Return the index of the runs named in an address: quoted names, separated by commas."""
        names = tuple(dict.fromkeys(unquote(part) for part in chosen.split(",")))[:MOST]
        with self._lock:
            found = self._open.pop(names, None)
            if found is None:
                while len(self._open) >= OPEN:
                    self._open.pop(next(iter(self._open))).close()
                found = Growing(lambda: self._members(names), self._say)
            self._open[names] = found
        return found

    def close(self) -> None:
        """Close every open index."""
        with self._lock:
            for growing in self._open.values():
                growing.close()

    def _members(self, names: Sequence[str]) -> list[Run]:
        return with_children([self._run(name) for name in names])


def with_children(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, each followed by its child runs."""
    return [member for run in runs for member in (run, *run.children())]


def _counts(run: Run) -> dict[str, Any]:
    found = overview(run)
    splits = Counter(question.split for question in run.questions.values())
    return {
        "conversations": found.conversations,
        "failed": found.failed,
        "judges": list(found.judges),
        "evals": found.evals,
        "usd": found.usd,
        "tags": list(found.label.tags),
        "note": found.label.note,
        "planned": run.manifest.planned(splits),
    }


HERE = Path("runs")
"""Default folder of runs."""


def shown(paths: Sequence[Path], say: Callable[[str], None]) -> Growing | Library:
    """Return the index of the runs at these paths, or a library if the path is a folder of runs.

    Without a path that is the folder `runs`, or the only run in it.
    """
    folders = [path for path in paths or [HERE] if is_folder(path)]
    if folders and len(paths) <= 1 and (paths or len(all_runs(HERE)) > 1):
        return Library(folders[0], say)
    return Growing(lambda: members(paths), say)


def is_folder(path: Path) -> bool:
    """Return True if a path is a folder that contains runs and is no run itself."""
    return not (path / "run.json").exists() and path.is_dir() and bool(all_runs(path))


def members(paths: Sequence[Path]) -> list[Run]:
    """Return the runs at these paths and in these folders, each with its children; without a path
    the newest run."""
    found: list[Run] = []
    for path in paths:
        found += all_runs(path) if is_folder(path) else [find_run(path)]
    return with_children(found or [find_run(None)])


def index_runs(paths: Sequence[Path], say: Callable[[str], None]) -> Index:
    """Return the index of the runs at these paths with their children, or of the newest run."""
    return build_index(members(paths), say)
