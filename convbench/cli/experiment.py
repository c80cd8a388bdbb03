"""`convbench experiment`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from convbench.cli.answers.learnt import ExperimentAnswer, ExperimentStep
from convbench.cli.command import as_typed, command
from convbench.cli.console import err, out
from convbench.cli.envelope import give
from convbench.cli.say import (
    fact,
    next_command,
    note,
    path_of,
    say_document,
    shown,
    table,
    told,
)
from convbench.options.experiment import ExperimentOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.commands.experiment import ExperimentResult, Planned
    from convbench.experiment.estimate import Amount
    from convbench.experiment.run import Progress
    from convbench.report.document import Document

MANY = 12
"""Addresses shown of those that were left out."""
FEW = 3
"""Cells whose tables are all printed."""
OF_ALL = ("Overview", "Missing", "Cost and time")
"""Parts of the report that are printed of more."""
ASSUMED = (
    "Upper bounds: replies at full length, every train conversation, one call per verdict. Device "
    "hours are a guess: one accelerator of 400 TFLOP/s in use, 6 operations a weight and token in "
    "training, 2 in reading, 2,500 tokens a second written by 8 billion weights, and .1 s or more "
    "a step of an adaptation to a self-edit; loading, compiling and waiting are not in them."
)


@command("experiment", ExperimentOptions, ExperimentAnswer)
def experiment(options: ExperimentOptions) -> None:
    """Run an experiment."""
    from convbench.commands.experiment import experiment as command
    from convbench.errors import PreflightError

    try:
        result = command(options, None if options.calls.quiet else say_progress)
    except PreflightError as error:
        say_missing(error.missing)
        raise typer.Exit(1) from None
    give(answer_experiment(result))
    say_experiment(result, as_typed())


def answer_experiment(result: ExperimentResult) -> ExperimentAnswer:
    """Return what an experiment did, or would do."""
    if result.outcomes:
        steps = [
            ExperimentStep(address=one.address, state=one.state, said=list(one.said))
            for one in result.outcomes
        ]
    else:
        parts = result.planned.parts
        steps = [ExperimentStep(address=one.step.address, state="planned") for one in parts]
    total = result.planned.total
    names = ("conversations", "calls", "verdicts", "tokens", "usd", "steps", "disk", "hours")
    return ExperimentAnswer(
        experiment=result.spec.name, root=shown(result.root), steps=steps,
        left_out=list(result.left), missing=list(result.planned.missing),
        estimate={name: getattr(total, name) for name in names},
        files=[path_of(file) for file in result.files],
    )  # fmt: skip


def say_progress(progress: Progress) -> None:
    """Print the step that begins, and how many failed so far."""
    failed = f", {progress.failed} failed or waiting" if progress.failed else ""
    told(err, f"[{progress.number}/{progress.of}] ", "bold", f"{progress.address}{failed}")


def say_missing(missing: Sequence[str]) -> None:
    """Print all that is missing, one line each."""
    for line in missing:
        told(err, "missing: ", "red", line)
    count = "1 thing is" if len(missing) == 1 else f"{len(missing)} things are"
    told(err, "error: ", "red", f"{count} missing; nothing was begun")


def say_experiment(result: ExperimentResult, command: str) -> None:
    """Print what an experiment did, or would do; raises the exit code where something is missing.

    `command` is what goes on with it.
    """
    fact("experiment", f"{result.spec.name}: {result.spec.title}")
    fact("runs", shown(result.root))
    for line in result.notes:
        note(line)
    if not result.outcomes:
        _say_plan(result.planned)
        if result.planned.missing:
            say_missing(result.planned.missing)
            raise typer.Exit(1)
        next_command(as_typed("--dry-run"))
        return
    if result.report is not None:
        say_document(_in_short(result))
    _say_ended(result)
    pages = [shown(path) for path in result.files if path.suffix == ".html"]
    for path in result.files:
        if path.suffix in (".html", ".tex", ".md"):
            told(err, "written ", "bold", shown(path))
    after = [f"python -m webbrowser {pages[0]}"] if pages else []
    if result.broken:
        next_command(f"{command}   retries what failed", *after)
        raise typer.Exit(1)
    next_command(*after, *([f"{command}   runs what was left out"] if result.left else []))


def _in_short(result: ExperimentResult) -> Document:
    """Return the report; of many cells the parts that are about all of them."""
    assert result.report is not None
    made = result.report.document
    if len(result.runs) <= FEW:
        return made
    return replace(made, parts=tuple(part for part in made.parts if part.title in OF_ALL))


def _say_ended(result: ExperimentResult) -> None:
    """Print how many steps are done, what failed and why, and what was left out."""
    failed = [one for one in result.outcomes if one.state == "failed"]
    waits = [one for one in result.outcomes if one.state == "waits"]
    done = len(result.outcomes) - len(failed) - len(waits)
    line = f"{done} of {len(result.outcomes)} done, {len(failed)} failed, {len(waits)} waiting"
    fact("steps", line + (f", {len(result.left)} left out" if result.left else ""))
    for one in result.outcomes:
        for text in one.said if one.state == "done" else ():
            note(f"{one.address}: {text}")
    for one in (*failed, *waits):
        told(err, f"{one.state}: ", "red", f"{one.address}: {'; '.join(one.said)}")
    if result.left:
        more = len(result.left) - MANY
        names = ", ".join(result.left[:MANY]) + (f" and {more} more" if more > 0 else "")
        note(f"left out and not done: {names}")


def _say_plan(planned: Planned) -> None:
    """Print every step that is left, then what they take."""
    for part in planned.parts:
        out.print(escape(printable(f"  {part.step.address}")), soft_wrap=True)
    if not planned.parts:
        out.print("  nothing is left to do")
        return
    found = Table(box=None, pad_edge=False)
    heads = ("cell", "conversations", "calls", "verdicts", "tokens at most", "dollars at most",
             "optimiser steps")  # fmt: skip
    for head in heads:
        found.add_column(head, justify="left" if head == "cell" else "right")
    for name, amount in planned.amounts.items():
        found.add_row(escape(name), *_figures(amount))
    found.add_row("all", *_figures(planned.total))
    out.print()
    table(found)
    _say_total(planned)


def _figures(amount: Amount) -> tuple[str, ...]:
    usd = f"{amount.usd:,.2f}" + (" + ?" if amount.unpriced else "")
    counts = (amount.conversations, amount.calls, amount.verdicts, amount.tokens)
    return (*(f"{count:,}" for count in counts), usd, f"{amount.steps:,}")


def _say_total(planned: Planned) -> None:
    amount = planned.total
    fact("disk", f"about {_bytes(amount.disk)}, and {_bytes(amount.passing)} while the largest "
         "training runs")  # fmt: skip
    fact("device hours", f"about {amount.hours:,.1f}")
    for line in planned.notes:
        note(line)
    if amount.unpriced:
        note(f"no price is known for {', '.join(sorted(amount.unpriced))}: its calls are not "
             "counted in the dollars")  # fmt: skip
    if amount.unweighed:
        note(f"the size of {', '.join(sorted(amount.unweighed))} is not known here: its disk space "
             "and hours are not counted")  # fmt: skip
    out.print(f"[dim]{ASSUMED}[/]", soft_wrap=True)


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"
