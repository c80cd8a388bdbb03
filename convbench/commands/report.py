"""`convbench report`: compare the policies of one or several runs in tables."""

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
from convbench.util.printable import make_printable

if TYPE_CHECKING:
    from convbench.reports.document import Document
    from convbench.reports.report import ReportResult

IMPORTED = "imported"
"""Name of the judge for rewards that came with a log, which cannot give more."""
PICTURES = (".pdf", ".svg", ".png")
SHOWN = 4
"""Largest number of files that are listed."""


class FigureAnswer(Answer):
    """A number with full precision, in the unit that is printed."""

    estimate: float
    """The number."""
    error: float | None = None
    """Its standard error."""
    interval: tuple[float, float] | None = None
    """Its 95% interval."""
    p: float | None = None
    """Two-sided p-value, adjusted as the table says; null for a number that is no difference."""
    n: int | None = None
    """Number of conversations, pairs or labels behind it."""


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
    """Notes on the tables."""


class ReportAnswer(Answer):
    """`report`, `patterns`, `demo`: tables, and the files that were written."""

    title: str
    """The report's title."""
    runs: list[str]
    """Runs that it compares."""
    parts: list[PartAnswer]
    """Its sections."""
    files: list[str] = Field(default_factory=list)
    """Files that were written."""


def run(options: ReportOptions, context: RunContext) -> ReportAnswer:
    """Compare policies, write and seal the requested files, and return the tables and the files'
    paths.

    With another format than `table` and no folder the text goes to stdout, and no file is written.
    """
    from convbench.reports.report import create_report
    from convbench.reports.writers import WRITERS, render_text, write_report

    result, form, out = create_report(options), options.format, options.out
    to_stdout = form != "table" and out is None and not options.plots
    to_stdout &= result.root is None  # a document needs its pictures beside it
    to_stdout &= (form != "html" or not sys.stdout.isatty()) and not context.json
    folder = out or result.folder
    files: list[Path] = []
    if result.root is not None:
        files = write_report(result.document, folder, WRITERS, named=out is not None)
    elif not to_stdout and (out is not None or options.plots or form == "html"):
        chosen = "markdown" if form == "table" else form
        forms = {chosen, "html"} if options.plots else {chosen}
        files = write_report(result.document, folder, forms, named=out is not None)
    note_files(result.warnings, files, context)
    if not files and not to_stdout:
        context.add_next(
            *_missing_lines(result),
            f"{context.as_typed('--json')} --plots        (pictures and one HTML page)",
            context.as_typed("--json", format="latex"),
        )
    written = render_text(result.document, form) if to_stdout else None
    return report_answer(result.document, files).with_source((result.document, written))


def report_answer(document: Document, files: Sequence[Path]) -> ReportAnswer:
    """Return the answer with a report's tables."""
    from convbench.reports.writers import as_data

    return ReportAnswer.model_validate(as_data(document, tuple(map(path_text, files))))


def _missing_lines(result: ReportResult) -> list[str]:
    """Return the commands that add what the report lacks: conversations, verdicts of a judge that
    scored only some policies, or any judge. One `judge` covers a run and its evaluations."""
    from convbench.reports.tables.details import conversation_counts

    commands: dict[str, None] = {}
    for section in result.sections:
        judges = [name for name in section.judges if ":" not in name and name != IMPORTED]
        for policy in (member for each in section.policies for member in each.members or (each,)):
            manifest, path = policy.run.manifest, policy.run.path
            numbers = conversation_counts(policy)
            if manifest.kind != "import" and numbers["missing"] + numbers["failed"]:
                commands[f"convbench build --run {shell_path(path)}"] = None
            root = run_option(path.parents[1] if path.parent.name == EVALS else path)
            for judge in judges:
                numbers = conversation_counts(policy, judge)
                if numbers["unjudged"] + numbers["judge failed"]:
                    commands[f"convbench judge --judge {shlex.quote(judge)}{root}"] = None
            if not section.judges:
                commands[judge_line(manifest, SpecOptions(), root)] = None
    return list(commands)


def note_files(warnings: Sequence[str], files: Sequence[Path], context: RunContext) -> None:
    """Add the warnings of a report as notes, and lines with the paths of its files.

    At most four pages or tables (.html, .md, .tex, .csv) are listed; pictures are one line with
    their number.
    """
    for warning in warnings:
        context.add_note(warning)
    pages = [path for path in files if path.suffix in (".html", ".md", ".tex", ".csv")]
    for path in pages[:SHOWN]:
        context.add_line("written", "bold", f" {shell_path(path)}", wrap=False)
    pictures = [path for path in files if path.suffix in PICTURES]
    if pictures:
        folder = shell_path(pictures[0].parent)
        context.add_line("written", "bold", f" {len(pictures)} pictures in {folder}", wrap=False)


def show(answer: ReportAnswer) -> None:
    """Print the tables, or the report in another format, without terminal escapes."""
    document, written = answer._source
    if written is None:
        print_document(document)
        return
    sys.stdout.write(make_printable(written) if sys.stdout.isatty() else written)
    sys.stdout.flush()


report_command = Command(run, show)
