"""Create a run from logged conversations and rewards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from convbench.formats.importing import ImportResult, import_file
from convbench.rollout.manifest import new_run_id
from convbench.store.jsonl import disk_error
from convbench.store.run import refuse_latest, set_latest


def import_run(
    file: str, run: Path | None = None, names: Mapping[str, str] | None = None
) -> ImportResult:
    """Create a run from a file of logged conversations or a dataset on the Hub, make it the newest
    run, and return it with its counts and notes.

    `run` is its directory; without it one named after the file and the time is created in `runs`.
    `names` maps our keys to the file's. Raise DataError naming the row, HubError, or RunError if
    the directory is not empty; an error leaves nothing behind.
    """
    run_id = new_run_id()
    name = re.sub(r"[^a-z0-9._-]+", "-", Path(file).stem.lower()).strip("-._") or "imported"
    target = run or _new_folder(f"{name}-import-{'-'.join(run_id.split('-')[:2])}", run_id)
    try:
        refuse_latest(target)
        imported = import_file(file, target, run_id, name[:80], names)
    except BaseException:
        if run is None:
            with suppress(OSError):
                target.rmdir()
        raise
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
