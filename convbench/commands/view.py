"""`view`: the conversation browser over runs with their children, or as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from convbench.judge.form import rubric_of
from convbench.store import find_run
from convbench.view import Index, build_index, serve, write_site
from convbench.view.agreement import agreement
from convbench.view.labels import Scoring


def index_runs(paths: Sequence[Path], say: Callable[[str], None]) -> Index:
    """Return the index of these runs with their children, or of the newest run."""
    runs = [find_run(path) for path in paths] or [find_run(None)]
    return build_index([member for run in runs for member in (run, *run.children())], say)


def view(
    index: Index, port: int | None, ready: Callable[[str], None], *, browser: bool = False
) -> None:
    """Serve the pages until interrupted; `ready` gets their address, `browser` opens it."""
    serve(index, Scoring(rubric_of, agreement), port, ready, browser=browser)


def view_static(index: Index, folder: Path, say: Callable[[str], None]) -> int:
    """Write the browser into a folder; return the number of files."""
    return write_site(index, folder, say)
