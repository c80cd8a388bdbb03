"""Make a report: read the frame of runs, and lay its tables and pictures out as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convbench.catalog.citations import collect_citations
from convbench.errors import RunError
from convbench.options.report import ReportOptions
from convbench.reports import tables
from convbench.reports.agents import agent_tables
from convbench.reports.document import Document, Part, Picture
from convbench.reports.frame import Setting, read_settings
from convbench.reports.judges import agreement_table, unfit_notes
from convbench.reports.metrics import PEOPLE
from convbench.reports.pairwise import wins_table, with_pages_won
from convbench.reports.people import corrected, with_labels
from convbench.reports.selfedits import forgetting_sequences, forgetting_table, with_self_edits
from convbench.store import Run


@dataclass(frozen=True)
class ReportResult:
    """A report that is not yet printed or written."""

    runs: list[Run]
    settings: list[Setting]
    document: Document


def make_report(
    runs: Sequence[Run],
    options: ReportOptions | None = None,
    *,
    title: str = "convbench report",
    front: Sequence[Part] = (),
) -> ReportResult:
    """Return the report of these runs and their evaluations; nothing is written.

    A part for each setting, then what compares settings, then how the policies talk; `front` stands
    before it all, and then runs may lack conversations. Raise RunError if there is nothing to
    report, a judge or policy is unknown, or runs are not comparable.
    """
    options = options or ReportOptions()
    allow, skip = options.allow or bool(front), bool(front)
    known = read_settings(runs, options.split, kind=options.kind, allow=allow, skip_empty=skip)
    settings = [with_pages_won(each) for setting in known for each in with_self_edits(setting)]
    settings = with_labels(settings)
    judge = options.judge
    judges = dict.fromkeys(name for setting in settings for name in setting.judges)
    if judge is not None and judge not in judges:
        raise RunError(
            f"--judge {judge}: found verdicts of {', '.join(judges) or 'no judge'}; expected one "
            f"of these, or judge first: convbench judge --judge {judge}"
        )
    for place, setting in enumerate(settings if judge else ()):  # people are no judge's taste
        own = {name: spec for name, spec in setting.judges.items() if name in (judge, PEOPLE)}
        settings[place] = replace(setting, judges=own)
    policies = [policy for setting in settings for policy in setting.policies]
    names = dict.fromkeys(policy.name for policy in policies)
    for typed in options.baseline:
        if typed.casefold() not in map(str.casefold, names):
            raise RunError(
                f"--baseline {typed}: found no such policy; expected one of {', '.join(names)}"
            )
    parts = [_part(setting, options) for setting in settings]
    together = _together(settings, options)
    parts += [together] if together.tables else []
    if options.patterns and settings:
        from convbench.reports.patterns import patterns_part

        parts.append(patterns_part(settings, plots=options.plots))
    specs = [item for setting in settings for item in setting.judges.items()]
    cited = collect_citations(
        (run.manifest for policy in policies for run in policy.runs),
        (spec for name, spec in specs if spec is not None and name != PEOPLE),
        (policy.recipe for policy in policies if policy.recipe),
    )
    folders = tuple(str(run.path) for run in runs)
    document = Document(title, (*front, *parts), folders, cited.sources, cited.bibtex)
    return ReportResult(list(runs), settings, document)


def _part(setting: Setting, options: ReportOptions) -> Part:
    made = (
        tables.results(setting, paper=options.paper),
        *(tables.differences(setting, name) for name in options.baseline or (None,)),
        corrected(setting),
        agreement_table(setting),
        wins_table(setting),
        *(tables.by_key(*varied) for varied in tables.within(setting)),
        *(forgetting_table(name, some) for name, some in forgetting_sequences(setting).items()),
        tables.best_of_n(setting),
        *agent_tables(setting),
        tables.training(setting),
        tables.counts(setting),
    )
    drawn: tuple[Picture, ...] = ()
    if options.plots:
        from convbench.reports.plots import setting_pictures

        drawn = tuple(setting_pictures(setting))
    said = (*tables.answers(setting), *unfit_notes(setting))
    return Part(setting.title, said, tuple(filter(None, made)), drawn)


def _together(settings: Sequence[Setting], options: ReportOptions) -> Part:
    """Return the part of what compares settings: all of them, and numbers of turns."""
    alike: dict[tuple[str, ...], list[Setting]] = {}
    for s in settings:
        alike.setdefault((s.task, s.mode, s.protocol, s.more), []).append(s)
    made, drawn = [tables.matrix(settings, paper=options.paper)], list[Picture]()
    for (task, mode, *_), some in alike.items():
        for varied in tables.over_turns(some):
            table = tables.by_key(*varied)
            made.append(replace(table, caption=f"{table.caption}: {task} · {mode}"))
            if options.plots:
                from convbench.reports.plots import curves, drawing

                with drawing():
                    drawn += curves(some[0], *varied)
    return Part("All settings", (), tuple(filter(None, made)), tuple(drawn))
