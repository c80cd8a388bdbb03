"""Count the optimiser steps of a training before it starts, and its rows before there is a log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convbench.errors import TrainError
from convbench.models.weights_path import max_positions, weights_of
from convbench.schema.recipe import Fit, Recipe, TieRule


def row_limit(recipe: Recipe) -> int | None:
    """Return most tokens of a row: the recipe's limit or its model's positions, whichever is less;
    None without a limit."""
    model = recipe.model or ""
    limits = [recipe.data.max_length, max_positions(weights_of(model) or model)]
    return min((limit for limit in limits if limit is not None), default=None)


def with_accumulation(recipe: Recipe, processes: int, *, keep_size: bool = False) -> Recipe:
    """Return the recipe with the accumulation that gives `fit.batch` rows a step over so many
    processes; unchanged if it is None.

    If they cannot share these evenly, `fit.batch` becomes the nearest number that they can, and
    `fit.batch_size` the largest, up to its own, that divides a process's share. With `keep_size`
    that stays, and the number is a multiple of it. Raise TrainError if `fit.batch` is none.
    """
    fit = recipe.fit
    if fit.batch is None:
        return recipe
    if fit.batch % fit.batch_size:
        raise TrainError(
            f"recipe {recipe.name!r}: fit.batch: found {fit.batch}; expected a multiple of "
            f"{fit.batch_size}, which is fit.batch_size"
        )
    unit = processes * (fit.batch_size if keep_size else 1)
    rows = unit * max(1, (2 * fit.batch + unit) // (2 * unit))
    share = rows // processes
    size = max(n for n in range(1, fit.batch_size + 1) if share % n == 0)
    values = {"batch": rows, "batch_size": size, "accumulation": share // size}
    return recipe.model_copy(update={"fit": fit.model_copy(update=values)})


def batch_notes(stated: int | None, fit: Fit, processes: int) -> Iterator[str]:
    """Yield a note if a step has another number of rows than the recipe states."""
    if stated == fit.batch or stated is None:
        return
    exact = [str(count) for count in range(1, 2 * processes) if stated % count == 0]
    yield (
        f"fit.batch: {stated} rows a step cannot be shared by {processes} processes; each step has "
        f"the nearest number, {fit.batch} ({fit.batch_size} x {fit.accumulation} x {processes}); "
        f"exact with {' or '.join(exact[-2:])}"
    )


@dataclass(frozen=True, slots=True)
class LogSize:
    """Most that a log may hold which does not exist yet.

    A trainer's script may count from it, in functions of a recipe and the log, its `most_rows`
    (without it every conversation's) and its `candidates_per_reply`, which it samples first.
    """

    samples: Sequence[int]
    """Train conversations of each question."""
    replies: int
    """Replies of the policy in a conversation."""

    @property
    def conversation_count(self) -> int:
        """Return the number of train conversations."""
        return sum(self.samples)

    def count_contrasts(self, ties: TieRule) -> int:
        """Return the most pairs of a best and a worst conversation of a question: one, or with
        `all` each of the best with each of the worst."""
        return sum(n * n // 4 if ties == "all" else n > 1 for n in self.samples)

    def count_rows(self, recipe: Recipe) -> int:
        """Return the number of rows of the recipe's unit; with its `data.rows` at most so many, and
        those of the last question, which is complete."""
        per_conversation = self.replies if recipe.data.unit == "turn" else 1
        rows = self.conversation_count * per_conversation
        last = max(self.samples, default=0) * per_conversation
        return rows if recipe.data.rows is None else min(rows, recipe.data.rows + last)


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
