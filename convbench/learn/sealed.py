"""A checkpoint's seal, and the figures of its training computed again from the records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench import __version__
from convbench.learn import launch as launching
from convbench.learn.job import Job, counts_of
from convbench.store.checkpoint import RECIPE, TRAINING, Checkpoint
from convbench.store.folder_seal import seal_folder

KEPT = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", RECIPE, "adapter/*.safetensors",
        "adapter/*.json")  # fmt: skip
"""What a checkpoint is; logs and states of the training may go."""


def seal_checkpoint(folder: Path) -> None:
    """Seal a checkpoint that was just finished."""
    names = {
        path.relative_to(folder).as_posix()
        for pattern in KEPT
        for path in folder.glob(pattern)
        if path.is_file() and not path.name.startswith(".")
    }
    about = {"version": __version__, "run": Checkpoint(folder).training.get("run")}
    seal_folder(folder, "checkpoint", names, about)


def counts_again(folder: Path) -> dict[str, Any] | None:
    """Return what `training.json` says of the data, from the run as it is now; None for a learner
    that makes its data first. Raises ConvbenchError where the run cannot be read."""
    job = Job.read(folder / RECIPE)
    module = launching.load(launching.locate(job.recipe.trainer or ""))
    if hasattr(module, "prepare"):
        return None
    return counts_of(job, job.learnt(module))


def unequal_counts(folder: Path, again: dict[str, Any]) -> Iterator[str]:
    """Yield how `training.json` differs from what the records give."""
    training = Checkpoint(folder).training
    for name, value in again.items():
        if name in training and training[name] != value:
            yield (
                f"{TRAINING}: {name}: says {training[name]!r:.60}; the records give {value!r:.60}"
            )
