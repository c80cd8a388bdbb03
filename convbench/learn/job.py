"""One training job: a resolved recipe in the folder where its result goes."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.catalog.read import read
from convbench.errors import ConvbenchError, TrainError
from convbench.learn.launch import MARK
from convbench.learn.pairs import Pairs
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.learn.weights import Weighted
from convbench.models.where import content, named, positions
from convbench.schema.recipe import Recipe
from convbench.store.run import Run

Learnt = Weighted | Pairs
"""What a trainer's `data` returns."""


@dataclass(frozen=True)
class Job:
    """A resolved recipe (`recipe.yaml`) and the folder it lies in, which takes the result."""

    recipe: Recipe
    folder: Path

    @classmethod
    def read(cls, file: Path) -> Job:
        """Read a resolved recipe, as `convbench train` writes it."""
        recipe = catalog.check(Recipe, read(file), str(file))
        if recipe.run is None or recipe.model is None:
            raise TrainError(
                f"{file}: found no `run` or `model`; expected a resolved recipe; "
                "`convbench train NAME` writes one, or add both keys"
            )
        return cls(recipe, file.parent)

    @cached_property
    def run(self) -> Run:
        """The run it learns from."""
        assert self.recipe.run is not None
        return Run.open((self.folder / self.recipe.run).resolve())

    @property
    def model(self) -> str:
        """Model to start from: a path or Hub id."""
        assert self.recipe.model is not None
        return named(self.recipe.model) or self.recipe.model

    @cached_property
    def chat(self) -> ChatTokens:
        """Tokenizer and chat template of the model."""
        return ChatTokens(load_tokenizer(self.model))

    @property
    def longest(self) -> int | None:
        """Longest row in tokens: the recipe's, and never more than the model has positions."""
        limits = [self.recipe.data.max_length, positions(self.model)]
        return min((limit for limit in limits if limit is not None), default=None)


Data = Callable[[Job], Learnt]
"""From the run to weighted conversations or pairs; loads no torch."""
Fit = Callable[[Job, Any], None]
"""Train on them and save; loads torch."""


def script(data: Data, fit: Fit) -> None:
    """Run a trainer script: `trainers/NAME.py --recipe FILE`, under any launcher."""
    arguments = sys.argv[1:]
    if len(arguments) != 2 or arguments[0] != "--recipe":
        raise SystemExit(f"usage: {sys.argv[0]} --recipe FILE")
    try:
        job = Job.read(Path(arguments[1]))
        fit(job, data(job))
    except ConvbenchError as error:
        raise SystemExit(f"{MARK}{error}") from None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _leave()


def _leave() -> None:
    """End a worker whose work is saved, without tearing down the libraries' threads.

    On leaving, gloo's threads and the interpreter's end race each other, and now and then the loser
    aborts a process that had succeeded ("terminate called without an active exception").
    """
    atexit._run_exitfuncs()  # trackers close their files there
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def write_summary(job: Job, learnt: Learnt, log: list[dict[str, Any]], **more: Any) -> None:
    """Write `training.json`: where the checkpoint comes from, and the log of its training."""
    selection = learnt.selection
    (job.folder / "training.json").write_text(
        json.dumps(
            {
                "recipe": job.recipe.name,
                "base": job.recipe.model,
                "base_fingerprint": content(job.model),
                "run": job.run.manifest.id,
                "judge": selection.judge,
                "metric": job.recipe.data.metric,
                "conversations": len(selection.logged),
                "items": len(learnt.items),
                "skipped": {**selection.skipped, **learnt.skipped},
                **more,
                "log": log,
            },
            indent=1,
        )
        + "\n"
    )
