"""`report`: the paper's table of one or several runs, with what can be said of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from convbench.errors import RunError
from convbench.options.report import ReportOptions
from convbench.report.document import Document
from convbench.report.html import html
from convbench.report.latex import latex
from convbench.report.layout import document
from convbench.report.markdown import markdown
from convbench.report.sections import Section, sections
from convbench.stats.agreement import spearman, weighted_kappa
from convbench.store import Run, find_run
from convbench.store.jsonl import disk_error, write_whole

WRITERS = {"markdown": (markdown, "md"), "latex": (latex, "tex"), "html": (html, "html")}
"""Formats that are text, with the ending of their file."""


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

        made = with_pictures(
            made, found, judge=options.judge, kind=options.kind,
            agreement=[agreement(section) for section in found],
        )  # fmt: skip
    return ReportResult(runs, found, made)


def agreement(section: Section) -> dict[tuple[str, str], str]:
    """Return words on how far each two judges agree, over all policies of a section."""
    from convbench.report.plots.judges import both_scored

    words = {}
    for first, second in combinations(section.judges, 2):
        scores = both_scored(section, first, second)
        one, two = [a for a, _ in scores], [b for _, b in scores]
        rank, kappa = spearman(one, two), weighted_kappa(one, two)
        if rank is not None and kappa is not None:
            words[first, second] = f"Spearman {rank:.2f}, quadratically weighted kappa {kappa:.2f}."
    return words


def _check_judge(judge: str | None, found: Sequence[Section]) -> None:
    known = sorted({name for section in found for name in section.judges})
    if judge is not None and judge not in known:
        raise RunError(
            f"--judge {judge}: found verdicts of {', '.join(known) or 'no judge'}; expected one "
            f"of these, or judge first: convbench judge --judge {judge}"
        )


def text(made: Document, form: str) -> str:
    """Return the report as markdown, latex or html."""
    return WRITERS[form][0](made)


def write(
    made: Document, folder: Path, forms: Collection[str], *, name: str = "report"
) -> list[Path]:
    """Write the report in these formats, and its pictures; return the files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from None
    files = {f"{name}.{WRITERS[form][1]}": text(made, form).encode() for form in sorted(forms)}
    for part in made.parts:
        for picture in part.pictures:
            files[f"{picture.name}.svg"] = picture.svg.encode()
            files[f"{picture.name}.png"] = picture.png
    for file, data in files.items():
        write_whole(folder / file, data)
    return [folder / file for file in files]
