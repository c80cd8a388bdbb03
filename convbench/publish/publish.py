"""Publish a run: write the dataset's folder, check it, and commit it; a dry run only writes it."""

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
    """A published dataset, or the folder that a dry run wrote."""

    laid: Laid
    uploaded: Uploaded | None
    """None on a dry run, which keeps the folder."""


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
    """Raise RunError if the folder exists, is not empty, and no dry run made it: the file that
    marks such a folder is missing."""
    if not target.exists() or (target / mark).exists():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise RunError(f"{target}: there is something else there; expected no such folder")


def move(place: Path, target: Path) -> None:
    """Move a folder to the target, replacing what is there. Raises RunError."""
    try:
        if target.exists():
            shutil.rmtree(target)
        place.replace(target)
    except OSError as error:
        raise disk_error(target, error) from None
