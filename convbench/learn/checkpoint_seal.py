"""Seal a checkpoint, and compute the figures of its training again from the records."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench import __version__
from convbench.learn import launch as launching
from convbench.learn.job import Job, counts_of
from convbench.schema.recipe import Fit
from convbench.store.checkpoint import RECIPE, TRAINING, Checkpoint
from convbench.store.folder_seal import seal_folder

CHECKPOINT_FILES = (
    "*.safetensors",
    "*.json",
    "*.jinja",
    "*.txt",
    "*.model",
    RECIPE,
    "adapter/*.safetensors",
    "adapter/*.json",
)
"""Files that make a checkpoint; logs and states of the training may be deleted."""


def seal_checkpoint(folder: Path) -> None:
    """Write `seal.json` of a finished checkpoint, with the digests of its weights, tokenizer,
    recipe and adapter.

    Logs and states of the training are left out. Raise RunError if a file cannot be read or
    written.
    """
    names = {
        path.relative_to(folder).as_posix()
        for pattern in CHECKPOINT_FILES
        for path in folder.glob(pattern)
        if path.is_file() and not path.name.startswith(".")
    }
    about = {"version": __version__, "run": Checkpoint(folder).training.get("run")}
    seal_folder(folder, "checkpoint", names, about)


def counts_again(folder: Path) -> dict[str, Any] | None:
    """Return the data's figures of `training.json` (`counts_of`), computed from the run as it is
    now.

    Return None for a learner that prepares its data. Raise ConvbenchError if the run cannot be
    read.
    """
    job = Job.from_file(folder / RECIPE)
    module = launching.load_trainer(launching.locate_trainer(job.recipe.trainer or ""))
    if hasattr(module, "prepare"):
        return None
    return counts_of(job, job.training_data(module))


def unequal_counts(folder: Path, again: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each figure that `training.json` has with another value than `again`;
    figures it lacks are skipped."""
    training = Checkpoint(folder).training
    for name, value in again.items():
        if name in training and training[name] != value:
            yield (
                f"{TRAINING}: {name}: says {training[name]!r:.60}; the records give {value!r:.60}"
            )


def unequal_rates(folder: Path) -> Iterator[str]:
    """Yield a line if the learning rate of `recipe.yaml` does not explain the first logged one.

    It is held against the recipe's scheduler at that step and the one before. Yield nothing without
    logged rates or steps, or for a scheduler other than linear, cosine and constant.
    """
    checkpoint = Checkpoint(folder)
    fit, training = Job.from_file(folder / RECIPE).recipe.fit, checkpoint.training
    entries = [share for share in training.get("log") or () if share.get("learning_rate")]
    steps = training.get("steps")
    if not entries or not isinstance(steps, int):
        return
    step, rate = entries[0].get("step", 1), entries[0]["learning_rate"]
    rate_shares = [_rate_share(fit, at_step, steps) for at_step in (step - 1, step)]
    if not any(
        share is None or math.isclose(fit.learning_rate * share, rate, rel_tol=1e-4)
        for share in rate_shares
    ):
        yield (
            f"{RECIPE}: fit.learning_rate: says {fit.learning_rate:g}; the log of {TRAINING} "
            f"trained with {rate:g} at step {step}"
        )


def _rate_share(fit: Fit, step: int, steps: int) -> float | None:
    """Return the scheduler's factor of the learning rate at a step; None if it is unknown."""
    warmup = math.ceil(fit.warmup_steps * steps) if fit.warmup_steps < 1 else int(fit.warmup_steps)
    if fit.scheduler not in ("linear", "cosine", "constant"):
        return None
    if fit.scheduler == "constant":
        return 1.0
    if step < warmup:
        return step / max(1, warmup)
    progress = (step - warmup) / max(1, steps - warmup)
    if fit.scheduler == "linear":
        return max(0.0, 1 - progress)
    return fit.floor + (1 - fit.floor) * max(0.0, 0.5 * (1 + math.cos(math.pi * progress)))
