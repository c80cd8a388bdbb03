"""`convbench demo` and `convbench experiment`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convbench.cli.main import app
from convbench.cli.options import MODELS, Budget, BudgetTokens, Concurrency, DryRun, Set, Specs

if TYPE_CHECKING:
    from convbench.report.document import Document

SHOWN = ("results", "differences-to-base-paired")
"""Labels of the tables that the demo ends with."""


@app.command(epilog="Example:\n\n  convbench demo")
def demo(
    run: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Where the run goes; one that exists is gone on with."),
    ] = Path("runs/demo"),
    tasks: Annotated[int, typer.Option(min=20, help="Questions.")] = 300,
) -> None:
    """Watch a tiny policy learn on this machine: build, judge, train, eval, report."""
    from rich.markup import escape

    from convbench.cli.console import err, out
    from convbench.cli.say import fact, next_command, shown
    from convbench.commands.demo import DemoOptions
    from convbench.commands.demo import demo as command
    from convbench.report.terminal import terminal

    def say(step: str, why: str) -> None:
        err.print()
        err.rule(f"[bold]{step}[/]", align="left")
        err.print(escape(why), soft_wrap=False)

    result = command(DemoOptions(run=run, count=tasks), say)
    for item in terminal(_in_short(result.report.document), out):
        out.print(item)
    fact("run", shown(result.run.path))
    fact("dataset", f"{shown(result.folder)}, as `convbench publish` would send it")
    conversation = next(iter(result.run.conversations())).conversation_id
    name = shown(result.run.path)
    next_command(
        f"convbench show {conversation[:8]}",
        f"convbench view {name}",
        f"convbench report {name} --plots",
        "convbench experiment pocket --dry-run",
        "convbench show arc --mode thinking",
    )


def _in_short(document: Document) -> Document:
    """Return the report with its first tables only: results, and differences to Base."""
    parts = (
        replace(part, tables=tuple(table for table in part.tables if table.label in SHOWN))
        for part in document.parts
    )
    return replace(document, parts=tuple(parts))


@app.command(
    epilog="Examples:\n\n"
    "  convbench experiment pocket\n\n"
    "  convbench experiment paper --dry-run\n\n"
    "  convbench experiment mine.yaml --set seeds=[0,1,2]"
)
def experiment(
    name: Annotated[
        str, typer.Argument(help="Experiment: a name from `convbench list experiments`, or a file.")
    ],
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of its runs; without it runs/experiments/NAME."),
    ] = None,
    api_base: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of the server of the policy to start from; a judge's stands in its spec.",
            rich_help_panel=MODELS,
        ),
    ] = None,
    concurrency: Concurrency = None,
    budget: Budget = None,
    budget_tokens: BudgetTokens = None,
    specs: Specs = None,
    set_: Set = None,
    dry_run: DryRun = False,
) -> None:
    """Run a whole table from one file; the same command goes on where it stopped."""
    from convbench.catalog.options import SpecOptions
    from convbench.cli.say import spending
    from convbench.cli.say_experiment import say_experiment
    from convbench.commands.experiment import ExperimentOptions
    from convbench.commands.experiment import experiment as command
    from convbench.rollout.calls import CallOptions

    with spending() as ledger:
        say_experiment(
            command(
                ExperimentOptions(
                    name=name,
                    root=run,
                    dry_run=dry_run,
                    specs=SpecOptions(tuple(specs or ()), tuple(set_ or ())),
                    calls=CallOptions(api_base, concurrency, budget, budget_tokens, ledger=ledger),
                )
            )
        )
