"""`convbench train`: train a policy, once or in rounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from rich.markup import escape

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import (
    out,
    path_text,
    print_fact,
    quoted,
    run_option,
    shell_path,
)
from convbench.options.train import TrainOptions

if TYPE_CHECKING:
    from convbench.experiments.seal import RoundsWithTable
    from convbench.learn.train import TrainResult


class RoundAnswer(Answer):
    """One round."""

    number: int
    """From 1."""
    checkpoint: str
    """Folder of the checkpoint."""
    evaluated: str | None
    """Folder of the run that evaluates it; null without an evaluation."""


class TrainAnswer(Answer):
    """`train`: a checkpoint, or one for each round."""

    checkpoint: str | None
    """Its folder; null on a dry run and with rounds."""
    recipe: str
    """The recipe's name."""
    launch: str | None
    """How it was launched."""
    processes: int | None
    """Number of processes that trained."""
    preview: list[str] = Field(default_factory=list)
    """The lines of a dry run."""
    told: dict[str, str] = Field(default_factory=dict)
    """Facts that the learner reports about the result."""
    rounds: list[RoundAnswer] = Field(default_factory=list)
    """Rounds, in order."""
    judge: str | None = None
    """The judge of the rounds."""


def run(options: TrainOptions, context: RunContext) -> TrainAnswer:
    """Train once or in rounds, and return the checkpoint or the rounds; add the next commands.

    On a dry run nothing is written: `checkpoint` is None and `preview` has the lines.
    """
    from convbench.experiments.seal import RoundsWithTable
    from convbench.experiments.train import run_train

    done = run_train(options, context.session)
    if isinstance(done, RoundsWithTable):
        return _rounds_answer(done, options.recipe, context)
    for text in done.notes:
        context.add_note(text)
    checkpoint = None if done.path is None else path_text(done.path)
    if checkpoint is None:
        context.add_next(context.as_typed("--dry-run", cards=None))
    elif done.imported:
        context.add_next(f"convbench publish USER/NAME --checkpoint {quoted(checkpoint)} --dry-run")
    else:
        assert done.recipe.run is not None
        report = f"convbench report{run_option(Path(done.recipe.run), '')}"
        context.add_next(f"convbench eval {quoted(checkpoint)}", report)
    return TrainAnswer(
        checkpoint=checkpoint,
        recipe=done.recipe.name,
        launch=done.launch.name if done.launch else None,
        processes=done.launch.process_count if done.launch else None,
        preview=done.preview if checkpoint is None else [],
        told=dict(done.result_lines),
    ).with_source(done)


def _rounds_answer(done: RoundsWithTable, recipe: str, context: RunContext) -> TrainAnswer:
    result = done.result.rounds
    context.add_next(f"convbench report {shell_path(result.run.path)}")
    rounds = [
        RoundAnswer(
            number=each.number,
            checkpoint=path_text(each.checkpoint),
            evaluated=path_text(each.evaluated.path) if each.evaluated else None,
        )
        for each in result.rounds
    ]
    return TrainAnswer(
        checkpoint=None,
        recipe=recipe,
        launch=None,
        processes=None,
        rounds=rounds,
        judge=result.judge,
    ).with_source(done)


def show(answer: TrainAnswer) -> None:
    """Print the result of `train`, or its preview."""
    if answer.rounds:
        _print_rounds(answer)
        return
    result: TrainResult = answer._source
    if answer.checkpoint is None:
        for line in answer.preview:
            out.print(escape(line), soft_wrap=True)
        return
    name = quoted(answer.checkpoint)
    print_fact("checkpoint", name)
    print_fact("recipe", f"{answer.recipe}: {result.recipe.title}")
    print_fact("launch", f"{answer.launch}, {answer.processes} process(es)")
    for label, line in result.result_lines:
        print_fact(label, line)
    if result.imported:
        print_fact("to evaluate", f"on a run that was built: convbench eval {name} --run DIR")


def _print_rounds(answer: TrainAnswer) -> None:
    """Print the table of accuracies of `train seal`, then the folders of each round's checkpoint
    and evaluation."""
    done: RoundsWithTable = answer._source
    if done.table is not None:
        out.print(escape(done.table.read_text()), soft_wrap=True)
        print_fact("table", shell_path(done.table))
    print_fact("run", shell_path(done.result.rounds.run.path))
    print_fact("judge", answer.judge or "")
    for each in answer.rounds:
        evaluated = f", evaluated in {quoted(each.evaluated)}" if each.evaluated else ""
        print_fact(f"round {each.number}", f"{quoted(each.checkpoint)}{evaluated}")


train_command = Command(run, show)
