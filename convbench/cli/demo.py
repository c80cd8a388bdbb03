"""`convbench demo`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from convbench.cli.answers.learnt import ReportAnswer
from convbench.cli.command import command
from convbench.options.demo import DemoOptions

if TYPE_CHECKING:
    from convbench.report.document import Document

SHOWN = ("results", "differences-to-base-paired")
"""Labels of the tables that the demo ends with."""


@command("demo", DemoOptions, ReportAnswer)
def demo(options: DemoOptions) -> None:
    """Run the demo."""
    from rich.markup import escape

    from convbench.cli.console import err
    from convbench.cli.envelope import give
    from convbench.cli.report import answer_document
    from convbench.cli.say import fact, next_command, say_document, shown
    from convbench.commands.demo import demo as command

    def say(step: str, why: str) -> None:
        err.print()
        err.rule(f"[bold]{step}[/]", align="left")
        err.print(escape(why), soft_wrap=False)

    result = command(options, say)
    give(answer_document(result.report.document, [result.folder]))
    say_document(_in_short(result.report.document))
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
