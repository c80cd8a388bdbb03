"""`convbench experiment`: run all cells of a table from one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from rich.markup import escape
from rich.table import Table

from convbench.commands._command import Answer, Command, EarlyExit, RunContext
from convbench.commands._output import (
    err,
    out,
    path_text,
    print_document,
    print_fact,
    print_line,
    print_table,
    quoted,
    shell_path,
)
from convbench.errors import PreflightError
from convbench.options.experiment import ExperimentOptions
from convbench.util.printable import make_printable

if TYPE_CHECKING:
    from convbench.experiments.amounts import ResourceEstimate
    from convbench.experiments.experiment import ExperimentPlan, ExperimentResult
    from convbench.experiments.run import StepProgress
    from convbench.reports.document import Document

MANY = 12
"""Largest number of left-out steps that are listed."""
FEW = 3
"""Largest number of cells for which all tables are printed."""
OF_ALL = ("Missing", "Cost and time", "All settings")
"""Parts of the report that are printed for more cells."""
ASSUMED = (
    "Upper bounds: replies at full length, every train conversation, one call per verdict, no call "
    "of a tool."
)


class ExperimentStep(Answer):
    """One step of an experiment."""

    address: str
    """Its cell and step, e.g. `arc-seed0/train/swift`."""
    state: Literal["planned", "done", "failed", "waits"]
    """How it ended."""
    said: list[str] = Field(default_factory=list)
    """Notes on what was lost, or why it failed."""


class ExperimentAnswer(Answer):
    """`experiment`: its steps, and the files of its report."""

    experiment: str
    """Its name."""
    root: str
    """Folder of its runs."""
    steps: list[ExperimentStep]
    """Steps that were done, or on a dry run those that are left."""
    left_out: list[str]
    """Steps that were not selected and are not done."""
    missing: list[str]
    """What is missing, with the fix."""
    estimate: dict[str, float | int]
    """On a dry run: conversations, calls, verdicts, tokens, usd."""
    files: list[str]
    """Files of the report."""


def run(options: ExperimentOptions, context: RunContext) -> ExperimentAnswer:
    """Run an experiment, or plan it on a dry run, and return its steps.

    The exit code becomes 1 if steps failed or wait, or if a dry run finds something missing. Raises
    EarlyExit with code 1, before any step, if something is missing.
    """
    from convbench.experiments.experiment import run_experiment

    try:
        tell = None if options.calls.quiet else _print_progress
        result = run_experiment(options, tell, context.session)
    except PreflightError as error:
        _note_missing(error.missing, context)
        raise EarlyExit(1) from None
    for line in result.notes:
        context.add_note(line)
    if not result.outcomes:
        _note_plan(result.plan, context)
        if result.plan.missing:
            _note_missing(result.plan.missing, context)
            context.exit_code = 1
        else:
            context.add_next(context.as_typed("--dry-run"))
    else:
        _note_outcomes(result, context)
    return _make_answer(result)


def _make_answer(result: ExperimentResult) -> ExperimentAnswer:
    if result.outcomes:
        steps = [
            ExperimentStep(address=step.address, state=step.state, said=list(step.said))
            for step in result.outcomes
        ]
    else:
        parts = result.plan.steps
        steps = [ExperimentStep(address=part.step.address, state="planned") for part in parts]
    total = result.plan.total_estimate
    names = ("conversations", "calls", "verdicts", "tokens", "usd")
    return ExperimentAnswer(
        experiment=result.spec.name,
        root=path_text(result.root),
        steps=steps,
        left_out=list(result.left),
        missing=list(result.plan.missing),
        estimate={name: getattr(total, name) for name in names},
        files=[path_text(file) for file in result.files],
    ).with_source(result)


def _print_progress(progress: StepProgress) -> None:
    """Print the step that begins, and the number of failures so far."""
    failed = f", {progress.failed} failed or waiting" if progress.failed else ""
    print_line(err, f"[{progress.number}/{progress.total}] ", "bold", f"{progress.address}{failed}")


def _note_missing(missing: Sequence[str], context: RunContext) -> None:
    """Add a line for each thing that is missing."""
    for line in missing:
        context.add_line("missing: ", "red", line)
    count = "1 thing is" if len(missing) == 1 else f"{len(missing)} things are"
    context.add_line("error: ", "red", f"{count} missing; nothing was started")


def _note_plan(planned: ExperimentPlan, context: RunContext) -> None:
    """Add notes on what the estimate does not include."""
    if not planned.steps:
        return
    amount = planned.total_estimate
    for line in planned.notes:
        context.add_note(line)
    if amount.unpriced:
        context.add_note(
            f"no price is known for {', '.join(sorted(amount.unpriced))}: its calls are not "
            "counted in the dollars"
        )


def _note_outcomes(result: ExperimentResult, context: RunContext) -> None:
    """Add notes on failures, left-out steps and written files, and how to go on."""
    for step in result.outcomes:
        for text in step.said if step.state == "done" else ():
            context.add_note(f"{step.address}: {text}")
    for state in ("failed", "waits"):
        for step in result.outcomes:
            if step.state == state:
                context.add_line(f"{state}: ", "red", f"{step.address}: {'; '.join(step.said)}")
    if result.left:
        more = len(result.left) - MANY
        names = ", ".join(result.left[:MANY]) + (f" and {more} more" if more > 0 else "")
        context.add_note(f"omitted and not done: {names}")
    pages = [shell_path(path) for path in result.files if path.suffix == ".html"]
    for path in result.files:
        if path.suffix in (".html", ".tex", ".md"):
            context.add_line("written ", "bold", shell_path(path))
    after = [f"python -m webbrowser {pages[0]}"] if pages else []
    command = context.as_typed()
    if result.unfinished_steps:
        context.add_next(f"{command}   retries what failed", *after)
        context.exit_code = 1
    else:
        context.add_next(*after, *([f"{command}   runs what was omitted"] if result.left else []))


def show(answer: ExperimentAnswer) -> None:
    """Print the result of an experiment, or its plan."""
    result: ExperimentResult = answer._source
    print_fact("experiment", f"{answer.experiment}: {result.spec.title}")
    print_fact("runs", quoted(answer.root))
    if not result.outcomes:
        _print_plan(result.plan)
        return
    if result.report is not None:
        print_document(_shorten_report(result))
    states = [step.state for step in answer.steps]
    failed, waiting = states.count("failed"), states.count("waits")
    done = len(states) - failed - waiting
    line = f"{done} of {len(states)} done, {failed} failed, {waiting} waiting"
    print_fact("steps", line + (f", {len(result.left)} omitted" if result.left else ""))


def _shorten_report(result: ExperimentResult) -> Document:
    """Return the report; for many cells only the parts about all of them."""
    assert result.report is not None
    document = result.report.document
    if len(result.runs) <= FEW:
        return document
    return replace(document, parts=tuple(part for part in document.parts if part.title in OF_ALL))


def _print_plan(planned: ExperimentPlan) -> None:
    """Print the steps that are left, then the estimate."""
    for part in planned.steps:
        out.print(escape(make_printable(f"  {part.step.address}")), soft_wrap=True)
    if not planned.steps:
        out.print("  nothing is left to do")
        return
    table = Table(box=None, pad_edge=False)
    heads = (
        "cell",
        "conversations",
        "calls",
        "verdicts",
        "tokens at most",
        "dollars at most",
    )
    for head in heads:
        table.add_column(head, justify="left" if head == "cell" else "right")
    for name, amount in planned.amounts.items():
        table.add_row(escape(name), *_format_amount(amount))
    table.add_row("all", *_format_amount(planned.total_estimate))
    out.print()
    print_table(table)
    out.print(f"[dim]{ASSUMED}[/]", soft_wrap=True)


def _format_amount(amount: ResourceEstimate) -> tuple[str, ...]:
    usd = f"{amount.usd:,.2f}" + (" + ?" if amount.unpriced else "")
    counts = (amount.conversations, amount.calls, amount.verdicts, amount.tokens)
    return (*(f"{count:,}" for count in counts), usd)


experiment_command = Command(run, show)
