"""`convbench patterns`: compare how policies talk by clusters of their final responses."""

from __future__ import annotations

from convbench.commands._command import Command, RunContext
from convbench.commands._output import err, print_document
from convbench.commands.report import ReportAnswer, note_files, report_answer
from convbench.options.report import PatternOptions


def run(options: PatternOptions, context: RunContext) -> ReportAnswer:
    """Compare how policies talk, write the requested files, and return the tables and the files'
    paths."""
    from convbench.reports.patterns.patterns import report_patterns

    with err.status("clustering and placing the responses (UMAP is compiled first)"):
        result = report_patterns(options)
    note_files(result.warnings, result.files, context)
    return report_answer(result.document, result.files).with_source(result.document)


def show(answer: ReportAnswer) -> None:
    """Print the tables."""
    print_document(answer._source)


patterns_command = Command(run, show)
