"""Train a recipe once, or in rounds with their tables."""

from __future__ import annotations

from dataclasses import replace

from convbench.errors import UsageError
from convbench.experiment.rounds import ready, recipe_of
from convbench.experiment.seal import Rounds, train_rounds
from convbench.learn.export import with_filter
from convbench.learn.start import TrainResult
from convbench.learn.start import train as train_single
from convbench.options.shared import SpecOptions
from convbench.options.train import RoundsOptions, TrainOptions


def train(options: TrainOptions) -> TrainResult | Rounds:
    """Train a recipe once, or in rounds if the options or the recipe have them; return the result.

    Raises ConvbenchError subclasses, before torch is loaded for everything that can be checked.
    """
    options = replace(options, specs=tracked(options.specs, options.track))
    asked = RoundsOptions(
        options.recipe,
        options.rounds,
        options.first,
        options.judge,
        in_process=options.in_process,
        specs=options.specs,
        calls=options.calls,
        spread=options.spread,
    )
    found = recipe_of(asked)
    if found.rounds and options.dry_run:
        ready(asked)
    said = _of_one(options)
    if options.rounds is not None and said:
        raise UsageError(
            f"{said[0]}: goes with a single training; leave it out, or leave out --rounds"
        )
    if options.rounds is not None or (found.rounds and not said):
        return train_rounds(asked)
    return train_single(replace(options, specs=with_filter(options.specs, found)))


def tracked(specs: SpecOptions, name: str | None) -> SpecOptions:
    """Return the spec options with this tracker for every training; None changes nothing."""
    return specs if name is None else replace(specs, sets=(*specs.sets, f"fit.trackers=[{name}]"))


def _of_one(options: TrainOptions) -> list[str]:
    """Return the names of the used options that do not apply to several rounds."""
    single = {
        "--run, several": options.run[1:] or None,
        "--model": options.model,
        "--out": options.out,
        "--launch": options.launch,
        "--nodes": options.nodes,
        "--on": options.together,
        "--dry-run": options.dry_run or None,
    }
    return [name for name, value in single.items() if value is not None]
