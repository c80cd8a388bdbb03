"""The conversation browser over runs with their children, over a folder of runs, or as
files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from convbench.judge.scoring_form import rubric_of
from convbench.store import Run, all_runs, find_run
from convbench.view import Growing, Index, Library, build_index, serve, write_site
from convbench.view.agreement import agreement
from convbench.view.labels import Scoring
from convbench.view.library import with_children

HERE = Path("runs")
"""Where runs lie, where nobody says otherwise."""


def shown(paths: Sequence[Path], say: Callable[[str], None]) -> Growing | Library:
    """Return what is to be shown: the runs named, which grow, or a folder of runs to choose from.

    Without a path that is `runs`, or the one run in it.
    """
    folders = [path for path in paths or [HERE] if is_folder(path)]
    if folders and len(paths) <= 1 and (paths or len(all_runs(HERE)) > 1):
        return Library(folders[0], say)
    return Growing(lambda: members(paths), say)


def is_folder(path: Path) -> bool:
    """Whether a path is no run, but a folder with runs in it."""
    return not (path / "run.json").exists() and path.is_dir() and bool(all_runs(path))


def members(paths: Sequence[Path]) -> list[Run]:
    """Return these runs, those of folders among them, each with its children; without a path the
    newest run."""
    found: list[Run] = []
    for path in paths:
        found += all_runs(path) if is_folder(path) else [find_run(path)]
    return with_children(found or [find_run(None)])


def index_runs(paths: Sequence[Path], say: Callable[[str], None]) -> Index:
    """Return the index of these runs with their children, or of the newest run."""
    return build_index(members(paths), say)


def view(
    found: Growing | Library,
    port: int | None,
    ready: Callable[[str], None],
    *,
    browser: bool = False,
) -> None:
    """Serve the pages until interrupted; `ready` gets their address, `browser` opens it."""
    try:
        serve(found, Scoring(rubric_of, agreement), port, ready, browser=browser)
    finally:
        found.close()


def view_static(index: Index, folder: Path, say: Callable[[str], None]) -> int:
    """Write the browser into a folder; return the number of files."""
    return write_site(index, folder, say)
