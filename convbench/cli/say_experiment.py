"""What `experiment` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from convbench.cli.console import out
from convbench.cli.say import fact, next_command, note, shown
from convbench.report.terminal import terminal

if TYPE_CHECKING:
    from convbench.commands.experiment import ExperimentResult, Planned


def say_experiment(result: ExperimentResult) -> None:
    """Print what an experiment did, or would do."""
    fact("experiment", f"{result.spec.name}: {result.spec.title}")
    fact("runs", shown(result.root))
    if result.planned is not None:
        _say_plan(result.planned)
        next_command("the same command without --dry-run")
        return
    for line in result.failures:
        note(line)
    if result.report is not None:
        for item in terminal(result.report.document, out):
            out.print(item)
    names = " ".join(shown(path) for path in result.runs)
    pool = " --pool" if len(result.spec.seeds) > 1 else ""
    next_command(f"convbench report {names}{pool} --plots")


def _say_plan(planned: Planned) -> None:
    """Print every job, then calls and cost of the builds."""
    for job in planned.jobs:
        out.print(escape(f"  {job.cell.name}: {job.name}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for head in ("build", "conversations", "calls", "tokens at most", "dollars at most"):
        table.add_column(head, justify="left" if head == "build" else "right")
    for name, preview in planned.previews.items():
        dollars = "unknown" if preview.usd is None else f"{preview.usd:,.2f}"
        tokens = preview.prompt_tokens + preview.completion_tokens
        table.add_row(
            escape(name), f"{preview.conversations:,}", f"{preview.total_calls:,}",
            f"{tokens:,}", dollars,
        )  # fmt: skip
    out.print()
    out.print(table)
    out.print(
        "[dim]One seed each; evaluations ask as much again for each learner on the test "
        "questions, judges one call a conversation.[/]",
        soft_wrap=True,
    )
