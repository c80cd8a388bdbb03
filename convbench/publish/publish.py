"""Publish a run: write the dataset's folder, check it, and commit it; a dry run only writes it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from convbench.errors import RunError
from convbench.hub.repo import UploadResult, check_name, upload_folder
from convbench.publish.folder import DatasetFolder, write_dataset_folder
from convbench.store import Run
from convbench.store.jsonl import disk_error
from convbench.store.scratch import make_workspace


@dataclass(frozen=True)
class PublishedDataset:
    """A published dataset, or the folder that a dry run wrote."""

    dataset: DatasetFolder
    uploaded: UploadResult | None
    """None on a dry run, which keeps the folder."""


def publish_dataset(
    run: Run,
    repo: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    folder: Path | None = None,
    judge: str | None = None,
    leave_out_leaks: bool = False,
) -> PublishedDataset:
    """Publish a run as dataset `repo`. A dry run writes `folder` (RUN/publish) and sends nothing.

    Raises RunError (nothing to publish, secrets, leaks, a run being written) or HubError.
    """
    check_name(repo)
    target = folder or run.path / "publish"
    if dry_run:
        refuse_foreign_folder(target, "run/run.json")
    parent = target.parent if dry_run else Path(tempfile.gettempdir())
    with run.lock(), make_workspace(parent, ".publish-") as space:
        staging = space / "set"
        dataset = write_dataset_folder(
            run, repo, staging, judge=judge, leave_out_leaks=leave_out_leaks
        )
        if dry_run:
            replace_folder(staging, target)
            dataset.folder = target
            return PublishedDataset(dataset, None)
        return PublishedDataset(dataset, upload_folder(repo, staging, private=private))


def refuse_foreign_folder(target: Path, marker: str) -> None:
    """Raise RunError if the folder exists, is not empty, and no dry run made it: the file that
    marks such a folder is missing."""
    if not target.exists() or (target / marker).exists():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise RunError(f"{target}: there is something else there; expected no such folder")


def replace_folder(source: Path, target: Path) -> None:
    """Move a folder to the target, replacing what is there. Raises RunError."""
    try:
        if target.exists():
            shutil.rmtree(target)
        source.replace(target)
    except OSError as error:
        raise disk_error(target, error) from None
