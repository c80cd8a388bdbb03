"""Train a recipe once, or in rounds with their tables."""

from __future__ import annotations

from convbench.engine.session import Session
from convbench.errors import UsageError
from convbench.experiments.rounds import find_root, rounds_recipe
from convbench.experiments.seal import RoundsWithTable, train_rounds
from convbench.experiments.training import train_recipe
from convbench.learn.train import TrainResult
from convbench.options.train import RoundsOptions, TrainOptions


def run_train(
    options: TrainOptions, session: Session | None = None
) -> TrainResult | RoundsWithTable:
    """Train a recipe once, or in rounds with `--rounds`; return a TrainResult, or RoundsWithTable
    for rounds.

    A recipe that has rounds itself runs them unless an option that applies to a single training is
    used (several runs, model, out, launch, dry run); with `--rounds` such an option raises
    UsageError. Raise ConvbenchError, before torch is loaded for everything that can be checked.
    """
    session = session or Session()
    rounds_options = RoundsOptions(
        options.recipe,
        options.rounds,
        options.first_run,
        options.judge,
        in_process=options.in_process,
        specs=options.specs,
        calls=options.calls,
    )
    recipe = rounds_recipe(rounds_options)
    if recipe.rounds and options.dry_run:
        find_root(rounds_options)
    single_only = _single_options(options)
    if options.rounds is not None and single_only:
        raise UsageError(
            f"{single_only[0]}: applies to a single training; omit it, or omit --rounds"
        )
    if options.rounds is not None or (recipe.rounds and not single_only):
        return train_rounds(rounds_options, session)
    return train_recipe(options, session)


def _single_options(options: TrainOptions) -> list[str]:
    """Return the names of the used options that do not apply to several rounds."""
    single = {
        "--run, several": options.run[1:] or None,
        "--model": options.model,
        "--out": options.out,
        "--launch": options.launch,
        "--cards": options.cards,
        "--dry-run": options.dry_run or None,
    }
    return [name for name, value in single.items() if value is not None]
