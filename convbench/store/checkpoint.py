"""Read the folder of a checkpoint: the resolved recipe and what the training wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from convbench.catalog.read import parse_yaml
from convbench.errors import RunError, SpecError
from convbench.store.shape import is_file, read_bytes, read_object

RECIPE = "recipe.yaml"
"""The resolved recipe; written before the training."""
TRAINING = "training.json"
"""What the training wrote; written last, so that it marks a finished checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that holds a checkpoint, or will hold one."""

    folder: Path

    @property
    def is_finished(self) -> bool:
        """Return True if the folder holds `training.json`, which a training writes last."""
        return (self.folder / TRAINING).is_file()

    @cached_property
    def recipe(self) -> Mapping[str, Any]:
        """Return the resolved recipe in `recipe.yaml` by key, read once; empty without that file.

        Raises RunError if it is no YAML mapping or cannot be read.
        """
        return _read_recipe(self.folder / RECIPE)

    @cached_property
    def training(self) -> Mapping[str, Any]:
        """Return the contents of `training.json` by key, read once; empty if the training is not
        finished.

        Raises RunError if it cannot be read.
        """
        return read_object(self.folder / TRAINING)

    @property
    def id(self) -> str:
        """Return `RUN/FOLDER`: the run named in `training.json` and the folder's own name.

        RUN is `None`, as text, for a checkpoint that is not finished.
        """
        return f"{self.training.get('run')}/{self.folder.resolve().name}"

    @property
    def is_adapter(self) -> bool:
        """Return True if the folder has no `config.json`, as with an adapter's weights; also for a
        missing folder."""
        return not (self.folder / "config.json").is_file()


def _read_recipe(file: Path) -> Mapping[str, Any]:
    """Return a recipe, read with the same limits as every other YAML file."""
    if not is_file(file):
        return {}
    data = read_bytes(file)
    try:
        return parse_yaml(data.decode("utf-8", "replace"), str(file))
    except SpecError as error:
        raise RunError(str(error)) from None
