"""Create a run from logged conversations and rewards."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from convbench.formats.importing import ImportResult, import_logs
from convbench.formats.reading import ImportPlan
from convbench.rollout.manifest import new_run_id
from convbench.store.jsonl import disk_error
from convbench.store.run import refuse_latest, set_latest


def import_run(
    source: str, run: Path | None = None, plan: ImportPlan | None = None, *, dry: bool = False
) -> ImportResult:
    """Create a run from a file, folder, pattern or set on the Hub of logged conversations, make it
    the newest run, and return it with its counts and notes.

    `run` is its directory; without it one named after the file and the time is created in `runs`.
    With `dry` nothing is written. Raise DataError if nothing can be read, HubError, or RunError if
    the directory is not empty; an error leaves nothing behind.
    """
    run_id = new_run_id()
    name = re.sub(r"[^a-z0-9._-]+", "-", Path(source).stem.lower()).strip("-._") or "imported"
    if dry:
        return import_logs(source, None, run_id, name[:80], plan)
    target = run or _new_folder(f"{name}-import-{'-'.join(run_id.split('-')[:2])}", run_id)
    try:
        refuse_latest(target)
        imported = import_logs(source, target, run_id, name[:80], plan)
    except BaseException:
        if run is None:
            with suppress(OSError):
                target.rmdir()
        raise
    assert imported.run is not None
    set_latest(imported.run)
    return imported


def _new_folder(name: str, run_id: str) -> Path:
    """Create and return a folder in runs/, so that no other import of the same second takes it."""
    target = Path("runs") / name
    try:
        target.parent.mkdir(exist_ok=True)
        target.mkdir()
    except FileExistsError:
        return target.with_name(f"{name}-{run_id[-4:]}")
    except OSError as error:
        raise disk_error(target, error) from None
    return target
