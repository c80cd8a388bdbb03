"""`eval`: one policy on the test questions of a run, or of several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from convbench.errors import UsageError
from convbench.experiment.evaluate import EvalResult, evaluate
from convbench.options.evaluate import EvalOptions
from convbench.store.run import find_run

__all__ = ["EvalResult", "evaluate", "evaluate_each"]


def evaluate_each(options: EvalOptions) -> Iterator[EvalResult]:
    """Yield each run's evaluation, once it is done; without a run that of the checkpoint's own.

    All runs are opened before the first is evaluated. Raises as `evaluate` does.
    """
    runs = [find_run(path).path.resolve() for path in options.run]
    for path, folder in zip(options.run, runs, strict=True):
        if runs.count(folder) > 1:
            raise UsageError(f"--run {path}: found it twice; expected each run once")
    for one in options.run or (None,):
        yield evaluate(replace(options, run=() if one is None else (one,)))
