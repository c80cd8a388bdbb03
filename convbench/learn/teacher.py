"""The teacher of a distillation: the checkpoint named, or the run's newest of its kind."""

from __future__ import annotations

import json
from pathlib import Path

from convbench.errors import TrainError
from convbench.schema.recipe import Recipe
from convbench.store.run import Run


def teacher(run: Run, recipe: Recipe) -> str:
    """Return the checkpoint to distil: the one named, or the run's newest of `star-gate`."""
    if recipe.distil is None:
        raise TrainError(f"recipe {recipe.name!r}: distil: missing; expected its settings")
    if recipe.distil.teacher is not None:
        return recipe.distil.teacher
    done = [file.parent for file in run.checkpoints.glob("star-gate*/training.json")]
    done = [folder for folder in done if _recipe_name(folder) == "star-gate"]
    if not done:
        raise TrainError(
            f"{run.path}: found no finished star-gate checkpoint to distil; run first: "
            "convbench train star-gate, or name one with --set distil.teacher=PATH"
        )
    return str(max(done, key=lambda folder: (folder / "training.json").stat().st_mtime))


def _recipe_name(folder: Path) -> str:
    return str(json.loads((folder / "training.json").read_text()).get("recipe"))
