"""What a recipe makes of a run's log, without training: its trainer's own weights or pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from convbench import catalog
from convbench.errors import SpecError, UsageError
from convbench.judge.adaptation.verdict import MARGIN
from convbench.learn import launch as launching
from convbench.learn.job import Job, Learnt
from convbench.learn.start import sort_sets
from convbench.options.shared import SpecOptions
from convbench.schema.recipe import EditFilter, Recipe
from convbench.store.checkpoint import Checkpoint
from convbench.store.run import Run

TRAINED = "data.least={trained: 1}"
"""An edit that could not be trained on is no example, even where all others harm."""
FILTERS: Mapping[EditFilter, tuple[str, ...]] = {
    "best-of-k": ("data.metric=reward", "weighting.threshold=null", TRAINED),
    "improves": ("data.metric=net", f"weighting.threshold={MARGIN}", TRAINED),
    "right": ("data.metric=accuracy", "weighting.threshold=1.0"),
}
"""Which edits are kept: each context's best one, all that improve (equation 2) by more than the
margin of the judge's `improves`, or all after which their task is solved."""


def learnt_of(
    run: Run, name: str, specs: SpecOptions, data: dict[str, Any] | None = None
) -> tuple[Job, Learnt]:
    """Return the job of a recipe (a name or a file) on a run, and what its trainer learns from.

    `data` replaces values of the recipe's data selection. What a learner prepares (branches, a
    critic's ranking) is taken from the run where it was trained there. Raises SpecError (no such
    recipe, one that trains nothing), TrainError (not judged, nothing prepared, nothing left).
    """
    recipe = _loaded(name, with_filter(specs, _loaded(name, specs)))
    if recipe.trainer is None:
        raise SpecError(f"recipe {recipe.name!r} trains nothing, so that it weighs nothing either")
    module = launching.load(launching.locate(recipe.trainer))
    folder = run.checkpoints / recipe.name
    values = {
        "run": str(run.path.resolve()),
        "data": recipe.data.model_copy(update=data or {}),
        "model": recipe.model or Checkpoint(folder).recipe.get("model"),
    }
    job = Job(recipe.model_copy(update=values), folder)
    return job, job.learnt(module)


def _loaded(name: str, specs: SpecOptions) -> Recipe:
    sets, launch = sort_sets(specs.sets)
    if launch:
        raise UsageError("--set launch.…: nothing is launched here; expected keys of the recipe")
    return catalog.load(Recipe, "recipes", name, specs=specs.folders, sets=sets)


def with_filter(specs: SpecOptions, recipe: Recipe) -> SpecOptions:
    """Return the spec options with what the recipe's filter sets, where it has one; what the user
    sets goes before it."""
    if recipe.filter is None:
        return specs
    own = sort_sets(specs.sets)[0]
    sets = FILTERS[recipe.filter]
    return replace(specs, sets=(*(s for s in sets if s.partition("=")[0] not in own), *specs.sets))
