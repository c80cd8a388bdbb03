"""`convbench demo`: every stage on the embedded tiny world."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from convbench.commands._command import Command, RunContext
from convbench.commands._output import err, print_document, print_fact, shell_path
from convbench.commands.report import ReportAnswer, report_answer
from convbench.options.declare import Opt
from convbench.options.shared import MOST_EACH, CallOptions

if TYPE_CHECKING:
    from convbench.experiments.demo import DemoResult
    from convbench.reports.document import Document

SHOWN = ("results", "differences")
"""Names of the tables that the demo ends with."""


@dataclass(frozen=True)
class DemoOptions:
    """Watch a tiny policy learn on this machine: build, judge, train, eval, report."""

    EXAMPLES: ClassVar = ("convbench demo",)

    run: Annotated[Path, Opt("Where the run goes; an existing one is resumed.", metavar="DIR")] = (
        Path("runs") / "demo"
    )
    count: Annotated[int, Opt("Questions.", "--tasks", least=20, most=MOST_EACH)] = 300
    calls: Any = field(default_factory=CallOptions)
    """CallOptions; not an option of the command line."""


def run(options: DemoOptions, context: RunContext) -> ReportAnswer:
    """Build, judge, train, evaluate and report on the embedded tiny world; return its report.

    The answer's only file is the folder of the dataset. Each step is announced on stderr.
    """
    from rich.markup import escape

    from convbench.engine.session import Session
    from convbench.experiments.demo import run_demo

    def print_step(step: str, why: str) -> None:
        err.print()
        err.rule(f"[bold]{step}[/]", align="left")
        err.print(escape(why), soft_wrap=False)

    done = run_demo(
        options.run, options.count, options.calls, context.session or Session(), print_step
    )
    conversation = next(iter(done.run.conversations())).conversation_id
    name = shell_path(done.run.path)
    context.add_next(
        f"convbench show {conversation[:8]}",
        f"convbench view {name}",
        f"convbench report {name} --plots",
        "convbench experiment pocket --dry-run",
        "convbench show arc --mode thinking",
    )
    return report_answer(done.report.document, [done.folder]).with_source(done)


def show(answer: ReportAnswer) -> None:
    """Print the first tables, and the folders of run and dataset."""
    done: DemoResult = answer._source
    print_document(_shorten_document(done.report.document))
    print_fact("run", shell_path(done.run.path))
    print_fact("dataset", f"{shell_path(done.folder)}, as `convbench publish` would send it")


def _shorten_document(document: Document) -> Document:
    """Return the report with only two tables: results, and differences to Base."""
    parts = (
        replace(part, tables=tuple(table for table in part.tables if table.name in SHOWN))
        for part in document.parts
    )
    return replace(document, parts=tuple(parts))


demo_command = Command(run, show)
