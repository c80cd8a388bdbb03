"""Publish what the options name: a run or a checkpoint, on the Hub or as a folder."""

from __future__ import annotations

import json
from pathlib import Path

from convbench.errors import RunError, UsageError
from convbench.hub.checkpoint import (
    PublishedCheckpoint,
    publish_checkpoint,
    read_checkpoint,
    results_of,
)
from convbench.hub.dataset import PublishedDataset
from convbench.hub.dataset import publish_dataset as publish_run
from convbench.hub.repo import UploadResult, check_name
from convbench.options.publish import PublishOptions
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import write_atomic
from convbench.store.run import Run, find_run
from convbench.store.shape import read_object

NOTE = "published.json"
"""File in a run that records where it was published, for the cards of its checkpoints."""


def refuse_unfit(options: PublishOptions) -> None:
    """Check the options before the user is asked who may see the repository. Raises HubError for an
    invalid repository name, RunError if there is nothing to publish, UsageError for options that
    exclude each other."""
    if options.prefix is not None:
        raise UsageError("--prefix is for --experiment; leave it out")
    if options.repo is None:
        raise UsageError("found no repository; expected OWNER/NAME, as convbench publish me/arc")
    check_name(options.repo, "dataset" if options.checkpoint is None else "model")
    if options.checkpoint is None:
        find_run(options.run)
    else:
        read_checkpoint(options.checkpoint)


def publish_target(
    options: PublishOptions,
) -> tuple[Run | None, PublishedDataset | PublishedCheckpoint]:
    """Publish what the options name. Return (run, published dataset), or (None, published
    checkpoint). Raises UsageError, RunError or HubError."""
    refuse_unfit(options)
    if options.checkpoint is not None:
        return None, publish_as_model(options)
    run = find_run(options.run)
    return run, publish_as_dataset(options, run)


def publish_as_dataset(options: PublishOptions, run: Run) -> PublishedDataset:
    """Publish a run as a dataset in one commit, and record that in the run.

    A dry run writes the folder (RUN/publish) and sends nothing. Unchanged content makes no new
    commit. Raises RunError (nothing to publish, secrets) or HubError.
    """
    assert options.repo is not None
    private = bool(options.private)
    done = publish_run(
        run,
        options.repo,
        private=private,
        dry_run=options.dry_run,
        folder=options.folder,
        judge=options.judge,
    )
    if done.uploaded is not None:
        record_upload(run, done.uploaded, private)
    return done


def record_upload(run: Run, uploaded: UploadResult, private: bool) -> None:
    """Write in a run where it was published, for the cards of its checkpoints."""
    noted = {"repo": uploaded.repo, "commit": uploaded.commit, "private": private}
    write_atomic(run.path / NOTE, json.dumps(noted).encode() + b"\n")


def publish_as_model(options: PublishOptions) -> PublishedCheckpoint:
    """Publish a checkpoint as a model in one commit, with its evaluation if it has one.

    The option `run` names the run it was trained on, if that is not found automatically; `judge`
    the one whose reward is in the card. A dry run writes the option's `folder` (CHECKPOINT/publish)
    and sends nothing; otherwise no folder is left, and unchanged content makes no commit. Raise
    RunError (no checkpoint, secrets, no run, unclear judge) or HubError.
    """
    assert options.checkpoint is not None
    assert options.repo is not None
    checkpoint = read_checkpoint(options.checkpoint)
    parent = _training_run(checkpoint, options.run)
    return publish_checkpoint(
        checkpoint,
        parent,
        options.repo,
        private=bool(options.private),
        dry_run=options.dry_run,
        folder=options.folder,
        results=results_of(parent, options.checkpoint, options.judge),
        datasets=_public_datasets(parent),
    )


def _training_run(checkpoint: Checkpoint, named: Path | None) -> Run:
    """Return the run that a checkpoint was trained on: the run it lies in, the one its recipe
    names, or the one the user named. Raises RunError if none of them has the recorded id."""
    run_id, folder = checkpoint.training.get("run"), checkpoint.folder.resolve()
    candidates = [folder.parent.parent, folder / str(checkpoint.recipe.get("run"))]
    for candidate in candidates if named is None else [named]:
        if (candidate / "run.json").is_file():
            run = Run.open(candidate.resolve() if named is None else candidate)
            if run.manifest.id == run_id:
                return run
    where = (
        f"--run {named}: is another run; expected"
        if named
        else f"--checkpoint {checkpoint.folder}: found no"
    )
    raise RunError(f"{where} run {run_id}, which it was trained on; name it with --run DIR")


def _public_datasets(run: Run) -> list[str]:
    """Return the public repository that the run was published in or pulled from, as a list of one;
    empty if there is none."""
    noted = read_object(run.path / NOTE)
    if noted.get("repo") and not noted.get("private"):
        return [str(noted["repo"])]
    pulled = run.manifest.pulled_from
    return [pulled.partition("@")[0]] if pulled else []
