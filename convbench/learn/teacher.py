"""Find the teacher of a distillation: the named checkpoint, or the run's newest of TEACHER."""

from __future__ import annotations

from convbench.errors import TrainError
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import TRAINING, Checkpoint
from convbench.store.run import Run

TEACHER = "star-gate"
"""The recipe whose newest checkpoint is distilled if none is named."""


def find_teacher(run: Run, recipe: Recipe) -> str:
    """Return the path of the checkpoint to distil: the named one, unchecked, or the run's newest of
    recipe `star-gate`.

    Raise TrainError if there is none, or if the recipe has no `distil` settings.
    """
    if recipe.distil is None:
        raise TrainError(f"recipe {recipe.name!r}: distil: missing; expected its settings")
    if recipe.distil.teacher is not None:
        return recipe.distil.teacher
    checkpoints = (Checkpoint(folder) for folder in run.checkpoints_folder.glob(f"{TEACHER}*"))
    done = [
        checkpoint for checkpoint in checkpoints if checkpoint.training.get("recipe") == TEACHER
    ]
    if not done:
        raise TrainError(
            f"{run.path}: found no finished {TEACHER} checkpoint to distil; run first: "
            f"convbench train {TEACHER}, or name one with --set distil.teacher=PATH"
        )
    return str(
        max(
            (checkpoint.folder for checkpoint in done), key=lambda f: (f / TRAINING).stat().st_mtime
        )
    )
