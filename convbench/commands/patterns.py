"""`convbench patterns`: compare how policies talk by clusters of their final responses."""

from __future__ import annotations

from convbench.commands._command import Command, RunContext
from convbench.commands._output import err, print_document
from convbench.commands.report import ReportAnswer, report_answer, tell_files
from convbench.options.report import PatternOptions


def run(options: PatternOptions, context: RunContext) -> ReportAnswer:
    """Compare how policies talk, and return the tables."""
    from convbench.report.patterns.patterns import patterns

    with err.status("clustering and placing the responses (UMAP is compiled first)"):
        result = patterns(options)
    tell_files(result.warnings, result.files, context)
    return report_answer(result.document, result.files).of(result.document)


def show(answer: ReportAnswer) -> None:
    """Print the tables."""
    print_document(answer._source)


patterns_command = Command(run, show)
