"""`convbench report`: the paper's table of one or several runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import (
    EVALS,
    path_text,
    print_document,
    run_option,
    shell_path,
)
from convbench.commands.build import judge_line
from convbench.options.report import ReportOptions
from convbench.options.shared import SpecOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.report.document import Document
    from convbench.report.report import ReportResult

IMPORTED = "imported"
"""Judge of rewards that came with a log: nobody can be asked for more of them."""
PICTURES = (".pdf", ".svg", ".png")
SHOWN = 4
"""Files named one by one."""


class FigureAnswer(Answer):
    """A number as it was computed, in the unit that is shown."""

    estimate: float
    """The number."""
    error: float | None = None
    """Its standard error."""
    interval: tuple[float, float] | None = None
    """Its 95% interval."""
    p: float | None = None
    """Two-sided p of no difference, adjusted as the table says; null for what is no difference."""
    n: int | None = None
    """Conversations, pairs or labels that it is over."""


class CellAnswer(Answer):
    """One cell of a table."""

    text: str
    """As printed."""
    error: str | None = None
    """Its standard error, as printed."""
    rank: int = 0
    """1 for the best of its column, 2 for the second best."""
    figure: FigureAnswer | None = None
    """The number behind the text."""


class TableAnswer(Answer):
    """One table."""

    label: str
    """Its short name."""
    caption: str
    """Its caption."""
    columns: list[str]
    """Heads."""
    rows: list[list[CellAnswer]]
    """Cells by row, in the order of the heads."""
    notes: list[str]
    """Footnotes."""


class PartAnswer(Answer):
    """One section of a report."""

    title: str
    """Its title."""
    facts: list[str]
    """What is compared."""
    tables: list[TableAnswer]
    """Its tables."""
    notes: list[str]
    """What is to be known of them."""


class ReportAnswer(Answer):
    """`report`, `patterns`, `demo`: tables, and the files that were written."""

    title: str
    """The report's title."""
    runs: list[str]
    """Runs it is about."""
    parts: list[PartAnswer]
    """Its sections."""
    files: list[str] = Field(default_factory=list)
    """Files that were written."""


def run(options: ReportOptions, context: RunContext) -> ReportAnswer:
    """Compare policies, and write the files that were asked for."""
    from convbench.report.files import WRITERS, text, write
    from convbench.report.report import report
    from convbench.report.sealed import seal_report

    result, form, out = report(options), options.format, options.out
    to_stdout = form != "table" and out is None and not options.plots
    to_stdout &= result.root is None  # a document needs its pictures beside it
    to_stdout &= (form != "html" or not sys.stdout.isatty()) and not context.json
    folder = out or result.folder
    files: list[Path] = []
    if result.root is not None:
        files = write(result.document, folder, WRITERS, named=out is not None)
    elif not to_stdout and (out is not None or options.plots or form == "html"):
        chosen = "markdown" if form == "table" else form
        forms = {chosen, "html"} if options.plots else {chosen}
        files = write(result.document, folder, forms, named=out is not None)
    if files:
        files.append(seal_report(result.document, options, result.runs, result.root, files))
    tell_files(result.warnings, files, context)
    if not files and not to_stdout:
        context.next(
            *_missing_lines(result),
            f"{context.as_typed('--json')} --plots        (pictures and one HTML page)",
            context.as_typed("--json", format="latex"),
        )
    written = text(result.document, form) if to_stdout else None
    return report_answer(result.document, files).of((result.document, written))


def report_answer(document: Document, files: Sequence[Path]) -> ReportAnswer:
    """Return a report's tables."""
    from convbench.report.files import as_data

    return ReportAnswer.model_validate(as_data(document, tuple(map(path_text, files))))


def _missing_lines(result: ReportResult) -> list[str]:
    """Return the commands that add what the report lacks: conversations, verdicts of a judge that
    scored others of its policies, a judge at all. `judge` covers a run's evaluations."""
    from convbench.report.tables.counts import counts

    found: dict[str, None] = {}
    for section in result.sections:
        judges = [name for name in section.judges if ":" not in name and name != IMPORTED]
        for policy in (one for each in section.policies for one in each.members or (each,)):
            manifest, path = policy.run.manifest, policy.run.path
            numbers = counts(policy)
            if manifest.kind != "import" and numbers["missing"] + numbers["failed"]:
                found[f"convbench build --run {shell_path(path)}"] = None
            root = run_option(path.parents[1] if path.parent.name == EVALS else path)
            for judge in judges:
                numbers = counts(policy, judge)
                if numbers["unjudged"] + numbers["judge failed"]:
                    found[f"convbench judge --judge {shlex.quote(judge)}{root}"] = None
            if not section.judges:
                found[judge_line(manifest, SpecOptions(), root)] = None
    return list(found)


def tell_files(warnings: Sequence[str], files: Sequence[Path], context: RunContext) -> None:
    """Note what is to be known of a report, and where its files lie."""
    for warning in warnings:
        context.note(warning)
    pages = [path for path in files if path.suffix in (".html", ".md", ".tex", ".csv")]
    for path in pages[:SHOWN]:
        context.line("written", "bold", f" {shell_path(path)}", wrap=False)
    pictures = [path for path in files if path.suffix in PICTURES]
    if pictures:
        folder = shell_path(pictures[0].parent)
        context.line("written", "bold", f" {len(pictures)} pictures in {folder}", wrap=False)


def show(answer: ReportAnswer) -> None:
    """Print the tables, or the report in another format: on a terminal without what would steer
    it."""
    document, written = answer._source
    if written is None:
        print_document(document)
        return
    sys.stdout.write(printable(written) if sys.stdout.isatty() else written)
    sys.stdout.flush()


report_command = Command(run, show)
