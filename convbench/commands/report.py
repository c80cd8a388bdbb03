"""`convbench report`: compare the policies of one or several runs in tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


class TableAnswer(Answer):
    """One table."""

    name: str
    """Its name."""
    caption: str
    """Its caption."""
    rows: list[dict[str, Any]]
    """Its rows by column, unrounded; a mean has its error, interval, n and groups beside it, a
    difference also its p, and adjusted by Holm (`…_holm`)."""
    notes: list[str]
    """Footnotes."""


class PartAnswer(Answer):
    """One part of a report."""

    title: str
    """Its title: mostly a setting."""
    answers: list[str]
    """What came out, a line a policy."""
    tables: list[TableAnswer]
    """Its tables."""


class ReportAnswer(Answer):
    """`report`, `demo`: tables, and the files that were written."""

    title: str
    """The report's title."""
    runs: list[str]
    """Runs that it compares."""
    parts: list[PartAnswer]
    """Its parts."""
    files: list[str] = Field(default_factory=list)
    """Files that were written."""


def run(options: ReportOptions, context: RunContext) -> ReportAnswer:
    """Compare policies, write the requested files, and return the tables and the files' paths.

    With another format than `table` and no folder the text goes to stdout; pictures are always
    files.
    """
    from convbench.experiments.results import create_report, report_folder
    from convbench.reports.write import render_text, write_report

    result, form, out = create_report(options), options.format, options.out
    to_stdout = form != "table" and out is None and not options.plots
    to_stdout &= (form != "html" or not sys.stdout.isatty()) and not context.json
    files: list[Path] = []
    if not to_stdout and (out is not None or options.plots or form == "html"):
        chosen = {"markdown" if form == "table" else form} | ({"html"} if options.plots else set())
        folder = out or report_folder(options, result)
        files = write_report(result.document, folder, chosen, named=out is not None)
    _note_files(files, context)
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
    from convbench.reports.write import as_data

    return ReportAnswer(**as_data(document), files=list(map(path_text, files)))


def _missing_lines(result: ReportResult) -> list[str]:
    """Return the commands that add what the report lacks: conversations, verdicts of a judge that
    scored only some policies, or any judge."""
    commands: dict[str, None] = {}
    for setting in result.settings:
        judges = [name for name in setting.judges if ":" not in name and name != IMPORTED]
        for policy in setting.policies:
            own, run = setting.rows_of(policy), policy.run
            complete = own[~own["failed"]]
            if run.manifest.kind != "import" and policy.planned > len(complete):
                commands[f"convbench build --run {shell_path(run.path)}"] = None
            root = run.path.parents[1] if run.path.parent.name == EVALS else run.path
            for judge in judges:
                scored = complete[complete.get(f"{judge}/failed", 1) == 0]
                if len(scored) < len(complete):
                    named = f"convbench judge --judge {shlex.quote(judge)}{run_option(root)}"
                    commands[named] = None
            if not setting.judges:
                commands[judge_line(run.manifest, SpecOptions(), run_option(root))] = None
    return list(commands)


def _note_files(files: Sequence[Path], context: RunContext) -> None:
    """Add lines with the paths of a report's files; pictures are one line with their number."""
    for path in (path for path in files if path.suffix not in PICTURES):
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
