"""A checkpoint's folder: the resolved recipe it was trained with, and what the training wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from convbench.catalog.read import parse
from convbench.errors import RunError, SpecError
from convbench.store.shape import read_bytes, read_object, there

RECIPE = "recipe.yaml"
"""The resolved recipe; written before the training."""
TRAINING = "training.json"
"""What came of it; written last, so that it marks a finished checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that holds a checkpoint, or will."""

    folder: Path

    @property
    def finished(self) -> bool:
        """Whether its training came to the end."""
        return (self.folder / TRAINING).is_file()

    @cached_property
    def recipe(self) -> Mapping[str, Any]:
        """The resolved recipe; empty where none lies there. RunError where it cannot be read."""
        return _recipe(self.folder / RECIPE)

    @cached_property
    def training(self) -> Mapping[str, Any]:
        """What the training wrote; empty while unfinished. RunError where it cannot be read."""
        return read_object(self.folder / TRAINING)

    @property
    def id(self) -> str:
        """What a repository is known by to hold this checkpoint: RUN/FOLDER."""
        return f"{self.training.get('run')}/{self.folder.resolve().name}"

    @property
    def adapter(self) -> bool:
        """Whether the weights are an adapter's, without their base."""
        return not (self.folder / "config.json").is_file()


def _recipe(file: Path) -> Mapping[str, Any]:
    """Return a recipe, read as every other YAML: plain, bounded."""
    if not there(file):
        return {}
    data = read_bytes(file)
    try:
        return parse(data.decode("utf-8", "replace"), str(file))
    except SpecError as error:
        raise RunError(str(error)) from None
