"""Count the optimiser steps of a training before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convbench.errors import TrainError
from convbench.schema.recipe import Fit, Recipe


def with_accumulation(recipe: Recipe, processes: int) -> Recipe:
    """Return the recipe with the accumulation that gives `fit.batch` rows a step over so many
    processes; unchanged if it is None.

    Raise TrainError if `fit.batch` is no multiple of their batches.
    """
    fit = recipe.fit
    if fit.batch is None:
        return recipe
    rows_at_once = fit.batch_size * processes
    if fit.batch % rows_at_once:
        raise TrainError(
            f"recipe {recipe.name!r}: fit.batch: found {fit.batch}, which {processes} process(es) "
            f"of fit.batch_size {fit.batch_size} cannot share; expected a multiple of "
            f"{rows_at_once}"
        )
    batched = fit.model_copy(update={"accumulation": fit.batch // rows_at_once})
    return recipe.model_copy(update={"fit": batched})


@dataclass(frozen=True, slots=True)
class StepCount:
    """The number of rows, their unit, and the optimiser steps that they take."""

    rows: int
    unit: str
    """What one row is: `conversation`, `turn`, `pair`."""
    fit: Fit
    processes: int = 1
    drop_last: bool = False
    """Whether a last batch that the processes cannot share evenly is left out (as for DPO over
    several processes, if there is another batch)."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one pass over the rows, at least 1; the last may be of fewer rows."""
        size = self.fit.batch_size * self.processes
        drop = self.drop_last and self.processes > 1 and self.rows >= size
        batches = self.rows // size if drop else math.ceil(self.rows / size)
        return max(1, math.ceil(batches / self.fit.accumulation))

    @property
    def total_steps(self) -> int:
        """Optimiser steps of the training: `fit.max_steps` if set, else epochs times steps per
        epoch, rounded up."""
        return self.fit.max_steps or math.ceil(self.fit.epochs * self.steps_per_epoch)

    def describe(self) -> str:
        """Return a line: the steps, the unit of a row, and how many rows make a step."""
        fit = self.fit
        over = f" x {self.processes} processes" if self.processes > 1 else ""
        size = fit.batch_size * fit.accumulation * self.processes
        until = f"max_steps {fit.max_steps}" if fit.max_steps else f"{fit.epochs:g} epochs"
        return (
            f"{self.total_steps} optimiser steps: {self.rows} rows (one per {self.unit}), "
            f"{size} per step ({fit.batch_size} x {fit.accumulation}{over}), "
            f"{self.steps_per_epoch} steps per epoch, {until}"
        )
