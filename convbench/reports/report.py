"""Make a report: read the frame of runs, and lay its tables and pictures out as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convbench.catalog.citations import collect_citations
from convbench.errors import RunError
from convbench.reports.agents import agent_tables
from convbench.reports.document import Document, Part, Picture, Table
from convbench.reports.frame import Setting, read_settings
from convbench.reports.judges import agreement_table, unfit_notes
from convbench.reports.metrics import PEOPLE, only_judge
from convbench.reports.over import (
    TURNS,
    best_of_n,
    by_key,
    matrix,
    over_points,
    turn_points,
)
from convbench.reports.pairwise import wins_table, with_pages_won
from convbench.reports.people import corrected, with_labels
from convbench.reports.selfedits import forgetting_sequences, forgetting_table, with_self_edits
from convbench.reports.tables import answers, counts, differences, results, training
from convbench.stats.estimates import ErrorKind
from convbench.store import Run


@dataclass(frozen=True)
class ReportResult:
    """A report that is not yet printed or written."""

    runs: list[Run]
    settings: list[Setting]
    document: Document


def make_report(
    runs: Sequence[Run],
    split: str = "test",
    *,
    judge: str | None = None,
    kind: ErrorKind = "clustered",
    baselines: Sequence[str] = (),
    paper: bool = False,
    patterns: bool = False,
    plots: bool = False,
    allow: bool = False,
    title: str = "convbench report",
    front: Sequence[Part] = (),
) -> ReportResult:
    """Return the report of these runs and their evaluations; nothing is written.

    A part for each setting, then what compares settings, then with `patterns` how the policies
    talk. `judge` limits it to one judge, `baselines` name the policies that all are compared with
    in place of their own bases, `paper` adds what papers print, `front` stands before it all (an
    experiment's missing steps and cost, whose runs may lack conversations). Raise RunError if there
    is nothing to report, a judge or policy is unknown, or runs are not comparable.
    """
    known = read_settings(
        runs, split, kind=kind, allow=allow or bool(front), skip_empty=bool(front)
    )
    settings = [with_pages_won(each) for setting in known for each in with_self_edits(setting)]
    settings = with_labels(settings)
    if judge is not None:
        settings = only_judge(settings, judge)
    names = [name for typed in baselines for name in _find_policies(settings, typed)]
    parts = [_part(setting, list(dict.fromkeys(names)), paper, plots) for setting in settings]
    together = _together(settings, paper, plots)
    parts += [together] if together.tables else []
    data: dict[str, bytes] = {}
    if patterns and settings:
        from convbench.reports.patterns import patterns_part

        part, data = patterns_part(settings, plots=plots)
        parts.append(part)
    sources, bibtex = _citations(settings)
    folders = tuple(str(run.path) for run in runs)
    document = Document(title, (*front, *parts), folders, sources, bibtex, data)
    return ReportResult(list(runs), settings, document)


def _find_policies(settings: Sequence[Setting], typed: str) -> list[str]:
    """Return the names of the policies that a user means as baselines."""
    policies = [policy for setting in settings for policy in setting.policies]
    meant = [policy.name for policy in policies if policy.is_called(typed)]
    if not meant:
        names = ", ".join(dict.fromkeys(policy.name for policy in policies))
        raise RunError(f"--baseline {typed}: found no such policy; expected one of {names}")
    return meant


def _part(setting: Setting, baselines: Sequence[str], paper: bool, plots: bool) -> Part:
    """Return the part of one setting."""
    tables = (
        results(setting, paper=paper),
        *(differences(setting, name) for name in baselines or (None,)),
        corrected(setting),
        agreement_table(setting),
        wins_table(setting),
        *(by_key(*over) for over in over_points(setting)),
        *(forgetting_table(name, some) for name, some in forgetting_sequences(setting).items()),
        best_of_n(setting),
        *agent_tables(setting),
        training(setting),
        counts(setting),
    )
    drawn: tuple[Picture, ...] = ()
    if plots:
        from convbench.reports.plots import setting_pictures

        drawn = tuple(setting_pictures(setting))
    said = (*answers(setting), *unfit_notes(setting))
    return Part(setting.title, said, tuple(table for table in tables if table), drawn)


def _together(settings: Sequence[Setting], paper: bool, plots: bool) -> Part:
    """Return the part of what compares settings: all of them, and numbers of turns."""
    alike: dict[tuple[str, ...], list[Setting]] = {}
    for s in settings:
        alike.setdefault((s.task, s.mode, s.protocol, s.more), []).append(s)
    tables: list[Table | None] = [matrix(settings, paper=paper)]
    drawn: list[Picture] = []
    for (task, mode, *_), some in alike.items():
        table = by_key(turn_points(some), TURNS)
        tables.append(table and replace(table, caption=f"{table.caption}: {task} · {mode}"))
        if plots:
            from convbench.reports.plots import turns_picture

            drawn += turns_picture(some)
    return Part("All settings", (), tuple(table for table in tables if table), tuple(drawn))


def _citations(settings: Sequence[Setting]) -> tuple[tuple[str, ...], str]:
    """Return what to cite for these policies and judges, and its BibTeX."""
    policies = [policy for setting in settings for policy in setting.policies]
    judges = [item for setting in settings for item in setting.judges.items()]
    cited = collect_citations(
        (run.manifest for policy in policies for run in policy.runs),
        (spec for name, spec in judges if spec is not None and name != PEOPLE),
        (policy.recipe for policy in policies if policy.recipe),
    )
    return cited.sources, cited.bibtex
