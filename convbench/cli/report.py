"""`convbench report` and `convbench patterns`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from convbench.cli.answers.learnt import ReportAnswer
from convbench.cli.command import as_typed, command
from convbench.cli.console import err
from convbench.cli.envelope import give, wanted
from convbench.cli.pairwise import EVALS
from convbench.cli.say import next_command, note, of_run, path_of, say_document, shown
from convbench.options.report import PatternOptions, ReportOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.commands.patterns import PatternResult
    from convbench.commands.report import ReportResult
    from convbench.report.document import Document

IMPORTED = "imported"
"""Judge of rewards that came with a log: nobody can be asked for more of them."""
PICTURES = (".pdf", ".svg", ".png")
SHOWN = 4
"""Files named one by one."""


@command("report", ReportOptions, ReportAnswer)
def report(options: ReportOptions) -> None:
    """Compare policies."""
    from convbench.commands.report import report as command
    from convbench.report.files import WRITERS, text, write
    from convbench.report.sealed import seal_report

    result, form, out = command(options), options.format, options.out
    to_stdout = form != "table" and out is None and not options.plots
    to_stdout &= result.root is None  # a document needs its pictures beside it
    to_stdout &= (form != "html" or not sys.stdout.isatty()) and not wanted()
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
    give(answer_document(result.document, files))
    if to_stdout:
        say_text(text(result.document, form), result)
    else:
        say_report(result, files)


@command("patterns", PatternOptions, ReportAnswer)
def patterns(options: PatternOptions) -> None:
    """Compare how policies talk."""
    from convbench.commands.patterns import patterns as command

    with err.status("clustering and placing the responses (UMAP is compiled first)"):
        result = command(options)
    give(answer_document(result.document, result.files))
    say_patterns(result)


def answer_document(document: Document, files: Sequence[Path]) -> ReportAnswer:
    """Return a report's tables."""
    from convbench.report.data import as_data

    found = as_data(document, tuple(map(path_of, files)))
    return ReportAnswer.model_validate(found)


def say_report(result: ReportResult, files: Sequence[Path]) -> None:
    """Print the tables, then where the files lie."""
    say_document(result.document)
    _files(result, files)
    if not files:
        next_command(
            *_missing(result),
            f"{as_typed('--json')} --plots        (pictures and one HTML page)",
            as_typed("--json", format="latex"),
        )


def _missing(result: ReportResult) -> list[str]:
    """Return the commands that add what the report lacks: conversations, verdicts of a judge that
    scored others of its policies, a judge at all. `judge` covers a run's evaluations."""
    from convbench.cli.build import to_judge
    from convbench.options.shared import SpecOptions
    from convbench.report.tables.counts import counts

    found: dict[str, None] = {}
    for section in result.sections:
        judges = [name for name in section.judges if ":" not in name and name != IMPORTED]
        for policy in (one for each in section.policies for one in each.members or (each,)):
            manifest, path = policy.run.manifest, policy.run.path
            numbers = counts(policy)
            if manifest.kind != "import" and numbers["missing"] + numbers["failed"]:
                found[f"convbench build --run {shown(path)}"] = None
            root = of_run(path.parents[1] if path.parent.name == EVALS else path)
            for judge in judges:
                numbers = counts(policy, judge)
                if numbers["unjudged"] + numbers["judge failed"]:
                    found[f"convbench judge --judge {shlex.quote(judge)}{root}"] = None
            if not section.judges:
                found[to_judge(manifest, SpecOptions(), root)] = None
    return list(found)


def say_text(text: str, result: ReportResult) -> None:
    """Write a report in another format to stdout, on a terminal without what would steer it; all
    else goes to stderr."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
    _files(result, ())


def say_patterns(result: PatternResult) -> None:
    """Print the tables, then where the picture lies."""
    say_document(result.document)
    _files(result, result.files)


def _files(result: ReportResult | PatternResult, files: Sequence[Path]) -> None:
    for warning in result.warnings:
        note(warning)
    if not files:
        return
    pages = [path for path in files if path.suffix in (".html", ".md", ".tex", ".csv")]
    for path in pages[:SHOWN]:
        err.print(f"[bold]written[/] {escape(shown(path))}", soft_wrap=True)
    pictures = [path for path in files if path.suffix in PICTURES]
    if pictures:
        folder = escape(shown(pictures[0].parent))
        err.print(f"[bold]written[/] {len(pictures)} pictures in {folder}")
