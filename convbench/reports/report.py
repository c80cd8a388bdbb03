"""Make a report: read the frame of runs, and lay its tables and pictures out as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from convbench.catalog.citations import collect_citations
from convbench.errors import RunError
from convbench.reports.agents import agent_tables
from convbench.reports.document import Document, Part, Picture, Table
from convbench.reports.frame import Setting, find_policies, read_settings
from convbench.reports.judges import agreement_table, unfit_notes
from convbench.reports.metrics import PEOPLE, only_judge
from convbench.reports.over import (
    best_of_n,
    by_key,
    matrix,
    over_seeds,
    round_points,
    row_points,
    seed_points,
    turn_points,
)
from convbench.reports.pairwise import read_comparisons, wins_table, with_pages_won
from convbench.reports.people import corrected, with_labels
from convbench.reports.selfedits import forgetting_sequences, forgetting_table, with_self_edits
from convbench.reports.tables import (
    answers,
    by_temperature,
    counts,
    differences,
    results,
    training,
)
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
    settings = read_settings(runs, split, allow=allow or bool(front), skip_empty=bool(front))
    settings = [with_pages_won(each) for setting in settings for each in with_self_edits(setting)]
    if settings:
        settings = with_labels(
            settings, [run for s in settings for p in s.policies for run in p.runs]
        )
    if judge is not None:
        _check_judge(judge, settings)
        settings = only_judge(settings, judge)
    names = [name for typed in baselines for name in find_policies(settings, typed, "--baseline")]
    parts = [
        Part(
            setting.title,
            (*answers(setting, kind), *unfit_notes(setting)),
            tuple(_tables(setting, kind, list(dict.fromkeys(names)), paper)),
            tuple(_pictures(setting, kind)) if plots else (),
        )
        for setting in settings
    ]
    together = [table for group in _alike(settings) for table in _together(group, kind)]
    table = matrix(settings, kind, paper=paper)
    if table is not None or together:
        tables = tuple(filter(None, (table, *together)))
        drawn = tuple(_pictures_together(settings, kind)) if plots else ()
        parts.append(Part("All settings", (), tables, drawn))
    data: dict[str, bytes] = {}
    if patterns:
        from convbench.reports.patterns import patterns_part

        part, data = patterns_part(settings)
        parts.append(part)
    sources, bibtex = _citations(settings)
    folders = tuple(str(run.path) for run in runs)
    document = Document(title, (*front, *parts), folders, sources, bibtex, data)
    return ReportResult(list(runs), settings, document)


def _check_judge(judge: str, settings: Sequence[Setting]) -> None:
    known = dict.fromkeys(name for setting in settings for name in setting.judges)
    if judge not in known:
        raise RunError(
            f"--judge {judge}: found verdicts of {', '.join(known) or 'no judge'}; expected one of "
            f"these, or judge first: convbench judge --judge {judge}"
        )


def _tables(
    setting: Setting, kind: ErrorKind, baselines: Sequence[str], paper: bool
) -> Iterator[Table]:
    yield results(setting, kind, paper=paper)
    comparisons = read_comparisons(setting.runs)
    tables = (
        *(differences(setting, kind, name) for name in baselines or (None,)),
        corrected(setting),
        agreement_table(setting),
        wins_table(setting, comparisons, kind),
        by_temperature(setting, kind),
        by_key(round_points(setting), "rounds", "Round", kind, "Round 0 is the base."),
        by_key(row_points(setting), "rows", "Rows", kind),
        by_key(seed_points(setting), "seeds", "Seed", kind),
        over_seeds(setting),
        *(forgetting_table(name, some) for name, some in forgetting_sequences(setting).items()),
        best_of_n(setting, kind),
        *agent_tables(setting, kind),
        training(setting),
    )
    yield from (table for table in tables if table is not None)
    yield counts(setting)


def _alike(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Return the settings that differ in the number of turns alone."""
    groups: dict[tuple[str, ...], list[Setting]] = {}
    for s in settings:
        groups.setdefault((s.task, s.mode, s.protocol, s.more), []).append(s)
    return list(groups.values())


def _together(group: Sequence[Setting], kind: ErrorKind) -> Iterator[Table]:
    table = by_key(turn_points(group), "turns", "Turns", kind)
    if table is not None:
        yield replace(table, caption=f"{table.caption}: {group[0].task} · {group[0].mode}")


def _pictures(setting: Setting, kind: ErrorKind) -> Iterator[Picture]:
    from convbench.reports import plots

    yield from plots.setting_pictures(setting, kind)


def _pictures_together(settings: Sequence[Setting], kind: ErrorKind) -> Iterator[Picture]:
    from convbench.reports import plots

    for group in _alike(settings):
        yield from plots.turn_pictures(group, kind)


def _citations(settings: Sequence[Setting]) -> tuple[tuple[str, ...], str]:
    """Return what to cite for these policies and judges, and its BibTeX."""
    policies = [policy for setting in settings for policy in setting.policies]
    cited = collect_citations(
        (run.manifest for policy in policies for run in policy.runs),
        (
            spec
            for setting in settings
            for name, spec in setting.judges.items()
            if spec is not None and name != PEOPLE
        ),
        (policy.recipe for policy in policies if policy.recipe),
    )
    return cited.sources, cited.bibtex
