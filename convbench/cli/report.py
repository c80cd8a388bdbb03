"""`convbench report` and `convbench patterns`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from convbench.cli.console import err
from convbench.cli.main import app

Runs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RUN]…", help="Run directories; without any the newest run."),
]
Split = Annotated[
    Literal["train", "validation", "test", "all"],
    typer.Option(help="Whose conversations are reported."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write files there (RUN/reports with --plots)."),
]


@app.command(
    epilog="Examples:\n\n"
    "  convbench report\n\n"
    "  convbench report runs/arc-a runs/arc-b --paper --format latex\n\n"
    "  convbench report --judge gpt-4o --se naive\n\n"
    "  convbench report --plots --out table1"
)
def report(
    runs: Runs = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Set the paper's numbers beside ours.")
    ] = False,
    se: Annotated[
        Literal["clustered", "naive"],
        typer.Option("--se", help="Standard errors by group, or by conversation as the paper's."),
    ] = "clustered",
    judge: Annotated[
        str | None, typer.Option(metavar="NAME", help="Judge; without it one table for each.")
    ] = None,
    split: Split = "test",
    format_: Annotated[
        Literal["table", "markdown", "latex", "html"],
        typer.Option("--format", help="How it is written."),
    ] = "table",
    plots: Annotated[
        bool, typer.Option("--plots", help="Draw pictures too: PNG, SVG and one HTML page.")
    ] = False,
    pool: Annotated[
        bool,
        typer.Option("--pool", help="Join methods of one name from runs that differ in the seed."),
    ] = False,
    allow: Annotated[
        bool,
        typer.Option(
            "--allow-incomparable", help="Report runs of other judges, prompts or questions too."
        ),
    ] = False,
    out: Out = None,
) -> None:
    """Compare Base and the learners: means with errors, paired differences, counts."""
    from convbench.cli.say_report import say_report, say_text
    from convbench.commands.report import ReportOptions, text, write
    from convbench.commands.report import report as command

    result = command(ReportOptions(tuple(runs or ()), split, judge, se, paper, plots, pool, allow))
    to_stdout = format_ != "table" and out is None and not plots
    to_stdout &= format_ != "html" or not sys.stdout.isatty()
    folder = out or result.runs[0].reports
    files: list[Path] = []
    if not to_stdout and (out is not None or plots or format_ == "html"):
        form = "markdown" if format_ == "table" else format_
        files = write(result.document, folder, {form, "html"} if plots else {form})
    if to_stdout:
        say_text(text(result.document, format_), result)
    else:
        say_report(result, files)


@app.command(
    epilog="Examples:\n\n"
    "  convbench patterns runs/latest runs/latest/evals/swift\n\n"
    "  convbench patterns runs/latest --out patterns        (with its evaluations)"
)
def patterns(runs: Runs = None, split: Split = "test", out: Out = None) -> None:
    """Compare how policies talk: clusters of their final responses, diversity, telling words."""
    from convbench.cli.say_report import say_patterns
    from convbench.commands.patterns import PatternOptions
    from convbench.commands.patterns import patterns as command

    with err.status("clustering and placing the responses (UMAP is compiled first)"):
        result = command(PatternOptions(tuple(runs or ()), split, out))
    say_patterns(result)
