"""`convbench train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from convbench.cli.answers.learnt import RoundAnswer, TrainAnswer
from convbench.cli.command import as_typed, command
from convbench.cli.console import out
from convbench.cli.envelope import give
from convbench.cli.say import fact, next_command, note, of_run, path_of, shown
from convbench.options.train import TrainOptions

if TYPE_CHECKING:
    from convbench.experiment.rounds import RoundsResult
    from convbench.experiment.seal import SealResult
    from convbench.learn.start import TrainResult


@command("train", TrainOptions, TrainAnswer)
def train(options: TrainOptions) -> None:
    """Train once, or in rounds."""
    from convbench.commands.train import Rounds
    from convbench.commands.train import train as command

    done = command(options)
    if isinstance(done, Rounds):
        give(answer_rounds(done.result.rounds, options.recipe))
        say_seal(done.result, done.table)
    else:
        give(answer_train(done))
        say_train(done)


def answer_train(result: TrainResult) -> TrainAnswer:
    """Return what `train` did, or would do."""
    return TrainAnswer(
        checkpoint=None if result.path is None else path_of(result.path),
        recipe=result.recipe.name, launch=result.launch.name, processes=result.launch.processes,
        preview=result.preview if result.path is None else [], told=dict(result.told),
    )  # fmt: skip


def answer_rounds(result: RoundsResult, recipe: str) -> TrainAnswer:
    """Return each round."""
    rounds = [
        RoundAnswer(
            number=one.number, checkpoint=path_of(one.checkpoint),
            evaluated=path_of(one.evaluated.path) if one.evaluated else None,
        )
        for one in result.rounds
    ]  # fmt: skip
    return TrainAnswer(
        checkpoint=None, recipe=recipe, launch=None, processes=None, rounds=rounds,
        judge=result.judge,
    )  # fmt: skip


def say_train(result: TrainResult) -> None:
    """Print what `train` did, or would do."""
    for text in result.notes:
        note(text)
    if result.path is None:
        for line in result.preview:
            out.print(escape(line), soft_wrap=True)
        next_command(as_typed("--dry-run"))
        return
    name = shown(result.path)
    fact("checkpoint", name)
    fact("recipe", f"{result.recipe.name}: {result.recipe.title}")
    fact("launch", f"{result.launch.name}, {result.launch.processes} process(es)")
    for label, line in result.told:
        fact(label, line)
    if result.imported:
        fact("to evaluate", f"on a run that was built: convbench eval {name} --run DIR")
        next_command(f"convbench publish USER/NAME --checkpoint {name} --dry-run")
    else:
        assert result.recipe.run is not None
        report = f"convbench report{of_run(Path(result.recipe.run), '')}"
        next_command(f"convbench eval {name}", report)


def say_rounds(result: RoundsResult) -> None:
    """Print where each round's run, checkpoint and evaluation lie."""
    fact("run", shown(result.run.path))
    fact("judge", result.judge)
    for one in result.rounds:
        place = f", evaluated in {shown(one.evaluated.path)}" if one.evaluated else ""
        fact(f"round {one.number}", f"{shown(one.checkpoint)}{place}")
    next_command(f"convbench report {shown(result.run.path)}")


def say_seal(result: SealResult, table: Path | None) -> None:
    """Print the rounds of `train seal`, then where the table of accuracies lies."""
    if table is not None:
        out.print(escape(table.read_text()), soft_wrap=True)
        fact("table", shown(table))
    say_rounds(result.rounds)
