"""A checkpoint's folder: the resolved recipe it was trained with, and what the training wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from convbench.errors import RunError

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
        return _mapping(self.folder / RECIPE, yaml.safe_load)

    @cached_property
    def training(self) -> Mapping[str, Any]:
        """What the training wrote; empty while unfinished. RunError where it cannot be read."""
        return _mapping(self.folder / TRAINING, json.loads)

    @property
    def id(self) -> str:
        """What a repository is known by to hold this checkpoint: RUN/FOLDER."""
        return f"{self.training.get('run')}/{self.folder.resolve().name}"

    @property
    def adapter(self) -> bool:
        """Whether the weights are an adapter's, without their base."""
        return not (self.folder / "config.json").is_file()


def _mapping(file: Path, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    try:
        found = parse(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RunError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise RunError(f"{file}: found {type(found).__name__}; expected a mapping")
    return found
