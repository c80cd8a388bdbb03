"""`train`: one training, or several rounds of one with the tables that they leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from convbench.errors import SpecError
from convbench.learn.rounds import ready, recipe_of, rounds
from convbench.learn.seal import SealResult, many_passages, seal, with_filter
from convbench.learn.start import TrainResult
from convbench.learn.start import train as train_single
from convbench.options.train import RoundsOptions, TrainOptions
from convbench.report import adaptation


@dataclass(frozen=True)
class Rounds:
    """What several rounds did."""

    result: SealResult
    table: Path | None
    """The file of what self-edits taught, where they were learnt."""


def train(options: TrainOptions) -> TrainResult | Rounds:
    """Train a recipe once, or in rounds where they are asked for or the recipe has them.

    Raises ConvbenchError subclasses, before torch is loaded where something can be refused.
    """
    asked = RoundsOptions(
        options.recipe, options.rounds, options.run, options.judge,
        in_process=options.in_process, specs=options.specs, calls=options.calls,
    )  # fmt: skip
    found = recipe_of(asked)
    if found.rounds and options.dry_run:
        ready(asked)
    said = _of_one(options)
    if options.rounds is not None and said:
        raise SpecError(
            f"{said[0]}: goes with a single training; leave it out, or leave out --rounds"
        )
    if options.rounds is not None or (found.rounds and not said):
        return train_rounds(asked)
    return train_single(replace(options, specs=with_filter(options.specs, found)))


def _of_one(options: TrainOptions) -> list[str]:
    """Return the options said that mean nothing over several rounds."""
    single = {
        "--model": options.model,
        "--out": options.out,
        "--launch": options.launch,
        "--dry-run": options.dry_run or None,
    }
    return [name for name, value in single.items() if value is not None]


def train_rounds(options: RoundsOptions, *, baselines: bool = True) -> Rounds:
    """Run a recipe's rounds; where it filters self-edits, as SEAL: then with the file of what they
    taught, which is there before the long measures of many passages."""
    if recipe_of(options).filter is None:
        return Rounds(SealResult(rounds(options)), None)
    result = seal(options, baselines=baselines)
    if not result.taught:
        return Rounds(result, None)
    adaptation.write(result)
    many_passages(result, options)
    return Rounds(result, adaptation.write(result))
