"""`import`: logged conversations and rewards from elsewhere to a run."""

from __future__ import annotations

import re
from pathlib import Path

from convbench.formats.importing import Imported, import_file
from convbench.rollout.manifest import new_run_id
from convbench.store.run import set_latest


def import_(file: Path, run: Path | None = None) -> Imported:
    """Make a run of a JSON lines file; it becomes the newest run. `run` is its directory.

    Raises DataError naming the line, or RunError (directory taken).
    """
    run_id = new_run_id()
    name = re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("-._") or "imported"
    target = run or Path("runs") / f"{name}-import-{'-'.join(run_id.split('-')[:2])}"
    if run is None and target.exists():
        target = target.with_name(f"{target.name}-{run_id[-4:]}")
    imported = import_file(file, target, run_id, name[:80])
    set_latest(imported.run)
    return imported
