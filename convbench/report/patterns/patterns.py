"""The report of `patterns`: clusters of policies' final responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench.options.report import PatternOptions
from convbench.report.document import Document
from convbench.report.files import write_report
from convbench.report.patterns.analysis import Patterns, analyse_patterns
from convbench.report.patterns.present import patterns_document, points_csv
from convbench.report.patterns.responses import read_responses
from convbench.report.plots.style import Page
from convbench.store import Run, find_run
from convbench.store.jsonl import write_file


@dataclass
class PatternResult:
    """The report on language patterns, and the files that were written."""

    analysis: Patterns
    document: Document
    files: list[Path]
    warnings: list[str] = field(default_factory=list)


def report_patterns(options: PatternOptions) -> PatternResult:
    """Cluster and embed the final responses of policies, and write page, picture and points.

    Raises RunError for fewer than two policies, and DataError for responses without words.
    """
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    analysis = analyse_patterns(read_responses(runs, options.split))
    page = Page(options.columns, options.titles)
    document = patterns_document(analysis, _patterns_title(runs, options.split), page)
    document = replace(document, runs=tuple(str(run.path) for run in runs))
    folder = options.out or runs[0].reports_folder
    named = options.out is not None
    files = write_report(document, folder, ["html", "markdown"], name="patterns", named=named)
    write_file(folder / "patterns.csv", points_csv(analysis), named_by_user=named)
    return PatternResult(
        analysis, document, [*files, folder / "patterns.csv"], _difference_warnings(runs)
    )


def _patterns_title(runs: Sequence[Run], split: str) -> str:
    first = runs[0].manifest
    return f"Language patterns · {first.task.name} · {first.mode} · {split}"


def _difference_warnings(runs: Sequence[Run]) -> list[str]:
    out = []
    for key in ("task", "mode"):
        names = {
            str(getattr(getattr(r.manifest, key), "name", getattr(r.manifest, key))) for r in runs
        }
        if len(names) > 1:
            out.append(f"the runs differ in {key} ({', '.join(sorted(names))}): so will the words")
    return out
