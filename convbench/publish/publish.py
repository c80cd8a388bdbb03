"""Publish a run: lay out, check, and commit; or only lay out."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from convbench.errors import RunError
from convbench.hub.repo import Uploaded, check_name, upload
from convbench.publish.folder import Laid, lay_out
from convbench.store import Run
from convbench.store.jsonl import disk_error
from convbench.store.scratch import workspace


@dataclass(frozen=True)
class Published:
    """What was published, or would be."""

    laid: Laid
    uploaded: Uploaded | None
    """None on a dry run, where the folder is kept."""


def publish(
    run: Run,
    repo: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    folder: Path | None = None,
    judge: str | None = None,
    leave_out_leaks: bool = False,
) -> Published:
    """Publish a run as dataset `repo`. A dry run writes `folder` (RUN/publish) and sends nothing.

    Raises RunError (nothing to publish, secrets, leaks, a run being written) or HubError.
    """
    check_name(repo)
    target = folder or run.path / "publish"
    if dry_run:
        make_way(target, "run/run.json")
    parent = target.parent if dry_run else Path(tempfile.gettempdir())
    with run.lock(), workspace(parent, ".publish-") as space:
        place = space / "set"
        laid = lay_out(run, repo, place, judge=judge, leave_out_leaks=leave_out_leaks)
        if dry_run:
            move(place, target)
            laid.folder = target
            return Published(laid, None)
        return Published(laid, upload(repo, place, private=private))


def make_way(target: Path, mark: str) -> None:
    """Refuse a folder that an earlier dry run did not make: one without the file `mark`."""
    if not target.exists() or (target / mark).exists():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise RunError(f"{target}: there is something else there; expected no such folder")


def move(place: Path, target: Path) -> None:
    """Put a folder in the place of another."""
    try:
        if target.exists():
            shutil.rmtree(target)
        place.replace(target)
    except OSError as error:
        raise disk_error(target, error) from None
