"""Optimiser steps of a training: rows, batches, accumulation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convbench.errors import TrainError
from convbench.models.weights_path import max_positions, weights_of
from convbench.schema.recipe import Fit, Recipe


def row_limit(recipe: Recipe) -> int | None:
    """Return the most tokens of a row: the recipe's limit or its model's positions, whichever is
    less; None without a limit."""
    model = recipe.model or ""
    limits = [recipe.data.max_length, max_positions(weights_of(model) or model)]
    return min((limit for limit in limits if limit is not None), default=None)


def batches_of(fit: Fit, processes: int) -> tuple[int, int]:
    """Return (rows of a process at once, batches summed up for a step) on so many processes.

    With `fit.batch` a step has exactly so many rows over all processes, at most `fit.batch_size` at
    once. Raise TrainError if the processes cannot share it.
    """
    if fit.batch is None:
        return fit.batch_size, fit.accumulation
    share, rest = divmod(fit.batch, processes)
    if rest:
        below = [str(n) for n in (share * processes, (share + 1) * processes) if n]
        raise TrainError(
            f"fit.batch: found {fit.batch} rows a step, which {processes} processes cannot share; "
            f"expected {' or '.join(below)}, or another number of processes"
        )
    size = max(n for n in range(1, fit.batch_size + 1) if share % n == 0)
    return size, share // size


@dataclass(frozen=True, slots=True)
class Steps:
    """The optimiser steps that rows take."""

    rows: int
    unit: str
    """What one row is: `conversation`, `turn`, `pair`."""
    fit: Fit
    processes: int = 1

    @property
    def left_out(self) -> int:
        """Rows that every epoch leaves out, another set each time: several processes leave out a
        last batch that they cannot share evenly, unless it is the only one."""
        size = batches_of(self.fit, self.processes)[0] * self.processes
        return self.rows % size if self.processes > 1 and self.rows >= size else 0

    @property
    def per_epoch(self) -> int:
        """Optimiser steps of one pass over the rows, at least 1; the last may be of fewer rows."""
        size, accumulation = batches_of(self.fit, self.processes)
        batches = math.ceil((self.rows - self.left_out) / (size * self.processes))
        return max(1, math.ceil(batches / accumulation))

    @property
    def total(self) -> int:
        """Optimiser steps of the training."""
        return self.fit.max_steps or math.ceil(self.fit.epochs * self.per_epoch)

    def line(self) -> str:
        """Return a line: the steps, the unit of a row, how many rows make a step, and how many an
        epoch leaves out."""
        size, accumulation = batches_of(self.fit, self.processes)
        over = f" x {self.processes} processes" if self.processes > 1 else ""
        fit = self.fit
        until = f"max_steps {fit.max_steps}" if fit.max_steps else f"{fit.epochs:g} epochs"
        rest = (
            f"; an epoch leaves out {self.left_out} rows of a last batch" if self.left_out else ""
        )
        return (
            f"{self.total} optimiser steps: {self.rows} rows (one per {self.unit}), "
            f"{size * accumulation * self.processes} per step ({size} x {accumulation}{over}), "
            f"{self.per_epoch} steps per epoch, {until}{rest}"
        )
