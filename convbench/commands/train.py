"""`train`: one training, or several rounds of one with the tables that they leave."""

from __future__ import annotations

from pathlib import Path

from convbench.learn.rounds import RoundsOptions, recipe_of, rounds
from convbench.learn.seal import SealResult, many_passages, seal
from convbench.report import taught


def train_rounds(
    options: RoundsOptions, *, baselines: bool = True
) -> tuple[SealResult, Path | None]:
    """Run a recipe's rounds; where it filters self-edits (`args.filter`), as SEAL: then with the
    file of what they taught, which is there before the long measures of many passages."""
    if "filter" not in recipe_of(options).args:
        return SealResult(rounds(options)), None
    result = seal(options, baselines=baselines)
    if not result.taught:
        return result, None
    taught.write(result)
    many_passages(result, options)
    return result, taught.write(result)
