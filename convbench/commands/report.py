"""`report`: the paper's table of one or several runs, with what can be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from convbench.errors import RunError
from convbench.options.report import ReportOptions
from convbench.report.document import Document
from convbench.report.layout import document
from convbench.report.sections import Section, sections
from convbench.store import Run, find_run


@dataclass
class ReportResult:
    """A report, not yet printed or written."""

    runs: list[Run]
    sections: list[Section]
    document: Document
    warnings: list[str] = field(default_factory=list)


def report(options: ReportOptions) -> ReportResult:
    """Return the report of these runs with their children, or of the newest run.

    Raises RunError where nothing can be reported, or runs are not comparable.
    """
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    found = sections(runs, options.split, pool=options.pool, allow=options.allow)
    _check_judge(options.judge, found)
    made = document(found, judge=options.judge, kind=options.kind, paper=options.paper)
    if options.plots:
        from convbench.report.plots.draw import with_pictures
        from convbench.report.plots.judges import agreement

        made = with_pictures(
            made, found, judge=options.judge, kind=options.kind,
            agreement=[agreement(section) for section in found],
        )  # fmt: skip
    return ReportResult(runs, found, made)


def _check_judge(judge: str | None, found: Sequence[Section]) -> None:
    known = sorted({name for section in found for name in section.judges})
    if judge is not None and judge not in known:
        raise RunError(
            f"--judge {judge}: found verdicts of {', '.join(known) or 'no judge'}; expected one "
            f"of these, or judge first: convbench judge --judge {judge}"
        )
