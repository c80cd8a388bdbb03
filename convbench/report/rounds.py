"""Several rounds of a training, with the tables that they leave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from convbench.learn.rounds import recipe_of, rounds
from convbench.learn.seal import SealResult, many_passages, seal
from convbench.options.train import RoundsOptions
from convbench.report import adaptation


@dataclass(frozen=True)
class Rounds:
    """What several rounds did."""

    result: SealResult
    table: Path | None
    """The file of what self-edits taught, where they were learnt."""


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
