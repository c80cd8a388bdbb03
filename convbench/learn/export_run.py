"""Write a run in another trainer's format, weighted or paired by a recipe."""

from __future__ import annotations

from pathlib import Path

from convbench.errors import SpecError, UsageError
from convbench.formats.export import ExportResult
from convbench.formats.export import export_conversations as write
from convbench.formats.targets import FORMATS
from convbench.learn.export import (
    export_paired,
    export_weighted,
    flagged_train,
    folder_name,
    load_training_data,
)
from convbench.learn.pairs import Pairs
from convbench.learn.weights import Weighted
from convbench.options.shared import SpecOptions
from convbench.options.specs import load_plugins
from convbench.schema.recipe import FlaggedRule
from convbench.store.run import Run


def export_run(
    run: Run,
    to: str,
    out: Path | None = None,
    *,
    recipe: str | None = None,
    scale: float | None = None,
    judge: str | None = None,
    seed: int = 0,
    flagged: FlaggedRule | None = None,
    specs: SpecOptions | None = None,
) -> ExportResult:
    """Write the run's conversations to `out` (RUN/export/TO), one file a split; return what was
    written.

    With a `recipe` (a name or a file, as `train` takes it) the train split is the recipe's own
    training data, in RUN/export/TO/RECIPE[-JUDGE]: weighted conversations if the format has weights
    and no `scale` is set; else conversations repeated floor or ceil of scale * weight times, with
    that mean (randomised rounding; Mukherjee et al. 2025, end of section 3.2); or pairs of replies.
    Conversations of negative weight are left out and counted: no other trainer unlearns them from a
    file. Flagged conversations of the train split are dropped, unless `flagged` or the recipe says
    otherwise (`zero` sets a reward, so it needs a recipe). Raises SpecError, UsageError, TrainError
    (not judged, negative weights to round), RunError.
    """
    target = next((name for name in FORMATS if name == to), None)
    if target is None:
        raise UsageError(f"--to {to}: expected one of {', '.join(FORMATS)}")
    folder = run.path / "export" / target
    specs = specs or SpecOptions()
    load_plugins(specs)
    if recipe is None:
        _refuse_needless({"--scale": scale, "--judge": judge, "--set": specs.sets or None}, flagged)
        without = frozenset() if flagged == "keep" else flagged_train(run)
        done = write(run, target, out or folder, None, without, named=out is not None)
        done.notes += FORMATS[target].needs
        return done
    overrides = {"judge": judge, "flagged": flagged}
    data = {name: value for name, value in overrides.items() if value is not None}
    job, training_data = load_training_data(run, recipe, specs, data)
    destination = out or folder / folder_name(job.recipe)
    if isinstance(training_data, Pairs):
        return export_paired(
            training_data, target, destination, job.recipe, scale, named=out is not None
        )
    if isinstance(training_data, Weighted):
        return export_weighted(
            run, training_data, target, destination, job.recipe, scale, seed, named=out is not None
        )
    raise SpecError(
        f"--recipe {recipe}: learns from whole conversations against each other, which no format "
        "here can hold; expected one that weighs conversations or pairs replies"
    )


def _refuse_needless(options: dict[str, object], flagged: FlaggedRule | None) -> None:
    """Raise UsageError for options that need a recipe."""
    if flagged == "zero":
        raise UsageError("--flagged zero: expected a --recipe, whose rewards it sets; or drop")
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name}: expected a --recipe that it is for, e.g. --recipe refit")
