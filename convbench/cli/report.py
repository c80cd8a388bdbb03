"""`convbench report` and `convbench patterns`."""

from __future__ import annotations

import sys
from pathlib import Path

from convbench.cli.command import command
from convbench.cli.console import err
from convbench.options.report import PatternOptions, ReportOptions


@command("report", ReportOptions)
def report(options: ReportOptions) -> None:
    """Compare policies."""
    from convbench.cli.say_report import say_report, say_text
    from convbench.commands.report import report as command
    from convbench.report.files import text, write

    result, form, out = command(options), options.format, options.out
    to_stdout = form != "table" and out is None and not options.plots
    to_stdout &= form != "html" or not sys.stdout.isatty()
    folder = out or result.runs[0].reports
    files: list[Path] = []
    if not to_stdout and (out is not None or options.plots or form == "html"):
        chosen = "markdown" if form == "table" else form
        files = write(result.document, folder, {chosen, "html"} if options.plots else {chosen})
    if to_stdout:
        say_text(text(result.document, form), result)
    else:
        say_report(result, files)


@command("patterns", PatternOptions)
def patterns(options: PatternOptions) -> None:
    """Compare how policies talk."""
    from convbench.cli.say_report import say_patterns
    from convbench.commands.patterns import patterns as command

    with err.status("clustering and placing the responses (UMAP is compiled first)"):
        result = command(options)
    say_patterns(result)
