"""Make the report of runs or of an experiment: compare policies, or judge scores with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench.errors import RunError
from convbench.options.report import ReportOptions
from convbench.reports.citations import Citations, collect_citations
from convbench.reports.document import Document
from convbench.reports.experiment.against import against_part
from convbench.reports.experiment.experiment_document import (
    experiment_document,
    is_experiment,
    read_experiment,
)
from convbench.reports.gold import gold_report
from convbench.reports.layout import judges_of, report_document
from convbench.reports.pairwise import section_tournaments
from convbench.reports.plots.style import Page
from convbench.reports.policies import judge_spec, plain_name
from convbench.reports.sections import (
    Section,
    policy_aliases,
    policy_name,
    read_sections,
    with_baseline,
)
from convbench.reports.simulators import simulator_siblings
from convbench.reports.tables import gold_part, verdict_part
from convbench.reports.verdict import section_verdicts
from convbench.store import Run, find_run


@dataclass
class ReportResult:
    """A report that is not yet printed or written."""

    runs: list[Run]
    sections: list[Section]
    document: Document
    warnings: list[str] = field(default_factory=list)
    root: Path | None = None
    """The experiment's folder, if the report is of an experiment."""

    @property
    def folder(self) -> Path:
        """Return the default folder of the report's files: the first run's folder of reports, or
        `report` in the experiment's folder."""
        return self.runs[0].reports_folder if self.root is None else self.root / "report"


def create_report(options: ReportOptions) -> ReportResult:
    """Return the report of these runs and their children, by default of the newest run; nothing is
    written.

    A single folder of an experiment gives the experiment's document. Raise RunError if there is
    nothing to report, a judge or policy in the options is unknown, labels of pooled runs are asked
    for, or the runs are not comparable.
    """
    if len(options.runs) == 1 and is_experiment(options.runs[0]):
        return experiment_report(options.runs[0], options)
    if options.pool and (options.gold or options.verdict):
        raise RunError(
            "--pool: expected neither --gold nor --verdict, because people label the conversations "
            "of one run; report each run separately"
        )
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    report_sections = read_sections(runs, options.split, pool=options.pool, allow=options.allow)
    _check_judge(options.judge, report_sections, pairwise=options.pairwise)
    if options.baseline is not None:
        report_sections = with_baseline(report_sections, options.baseline, "--baseline")
    options = replace(options, against=_policy_names(report_sections, options.against))
    document = replace(
        _build_document(report_sections, options),
        columns=options.columns,
        runs=run_folders(runs),
        citations=section_citations(report_sections, options.judge),
    )
    return ReportResult(runs, report_sections, document)


def _policy_names(sections: Sequence[Section], against: Sequence[str]) -> tuple[str, ...]:
    """Return the policies' names in the tables for what the user typed, without duplicates."""
    return tuple(dict.fromkeys(policy_name(sections, name, "--against") for name in against))


def _names_in_experiment(sections: Sequence[Section], typed: Sequence[str]) -> tuple[str, ...]:
    """Return the names, in an experiment's tables, of all policies that the user's names mean.

    A method that was trained in several ways, e.g. at two sizes, is meant in each of them. Raise
    RunError for an unknown policy.
    """
    policies = [policy for section in sections for policy in section.policies]
    names: dict[str, None] = {}
    for name in typed:
        meant = [
            policy
            for policy in policies
            if name.casefold() in policy_aliases(policy) | {plain_name(policy).casefold()}
        ]
        listed = [p.name for p in meant] or [policy_name(sections, name, "--against")]
        names |= dict.fromkeys([*listed, *map(plain_name, meant)])
    return tuple(names)


def run_folders(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the paths of the runs' folders as texts, in the order of the runs."""
    return tuple(str(run.path) for run in runs)


def section_citations(sections: Sequence[Section], judge: str | None) -> Citations:
    """Return what to cite for the policies of these sections and their judges; `judge` limits it to
    one judge."""
    policies = [
        p for section in sections for policy in section.policies for p in policy.run_policies
    ]
    specs = (judge_spec(s.policies, name) for s in sections for name in judges_of(s, judge))
    return collect_citations(
        (policy.run.manifest for policy in policies),
        (spec for spec in specs if spec is not None),
        (policy.recipe for policy in policies if policy.recipe),
    )


def _build_document(sections: Sequence[Section], options: ReportOptions) -> Document:
    if options.gold:
        return gold_document(sections, options.judge)
    if options.verdict:
        return verdict_document(sections, options.judge)
    doc = report_document(
        sections,
        judge=options.judge,
        kind=options.kind,
        paper=options.paper,
        against=options.against,
        pairwise=options.pairwise,
    )
    if options.plots:
        from convbench.reports.plots.draw import with_pictures

        doc = with_pictures(
            doc,
            sections,
            judge=options.judge,
            kind=options.kind,
            pairwise=options.pairwise,
            page=Page(options.columns, options.titles),
        )
    return doc


def experiment_report(root: Path, options: ReportOptions) -> ReportResult:
    """Return the document of an experiment's folder, with pictures if matplotlib is installed;
    nothing is written.

    Runs that are not comparable get a note, seeds are pooled, and missing results are listed. Each
    experiment's folder in `against` adds a part with the paired differences to it. Raise RunError
    if the options choose a judge, a baseline or tables that the document does not have, or name an
    unknown policy in `against`.
    """
    for name in ("judge", "baseline", "gold", "verdict", "pairwise"):
        if getattr(options, name):
            raise RunError(
                f"--{name}: found an experiment's folder, whose document covers every "
                "judge and policy; name its run folders to choose"
            )
    experiment = read_experiment(root, options.split)
    title = experiment.plan.title or f"Experiment {root.resolve().name}"
    page = Page(options.columns, options.titles)
    others = [name for name in options.against if is_experiment(Path(name))]
    typed = [name for name in options.against if name not in others]
    against = _names_in_experiment(experiment.sections, typed)
    document = experiment_document(experiment, title, kind=options.kind, page=page, against=against)
    more = [
        against_part(
            experiment.sections,
            read_experiment(Path(other), options.split).sections,
            Path(other).resolve().name,
            options.kind,
        )
        for other in others
    ]
    document = replace(
        document,
        parts=(document.parts[0], *more, *document.parts[1:]),
        runs=run_folders(experiment.runs),
        citations=section_citations(experiment.sections, options.judge),
    )
    return ReportResult(list(experiment.runs), list(experiment.sections), document, root=root)


def gold_document(sections: Sequence[Section], judge: str | None) -> Document:
    """Return the document of people's labels, with a part for each section and judge that
    conversations were drawn for; `judge` limits it to one.

    Raise RunError if none were drawn.
    """
    parts = [
        gold_part(section, gold)
        for section in sections
        for name in judges_of(section, judge)
        if name is not None
        and (gold := gold_report(section, name, simulator_siblings(section, sections))) is not None
    ]
    if not parts:
        of = f" of judge {judge}" if judge else ""
        raise RunError(
            f"--gold: found no conversations drawn for people to label{of}; expected a draw: "
            "convbench gold RUN --draw 100"
        )
    return Document("convbench report: people's labels", tuple(parts))


def verdict_document(sections: Sequence[Section], judge: str | None) -> Document:
    """Return the document of verdicts, with a part for each trained policy and its evidence.

    Raises RunError if no trained policy and Base have scores of the judge that trained it.
    """
    parts = [
        verdict_part(section, verdict)
        for section in sections
        for verdict in section_verdicts(section, judge, simulator_siblings(section, sections))
    ]
    if not parts:
        raise RunError(
            "--verdict: found no trained policy and Base that are both scored by the judge that "
            "trained the policy; expected an evaluation of a checkpoint: convbench eval CHECKPOINT"
        )
    return Document("convbench report: verdicts", tuple(parts))


def _check_judge(judge: str | None, sections: Sequence[Section], *, pairwise: bool) -> None:
    known = {name for section in sections for name in section.judges}
    policies = [policy for section in sections for policy in section.policies]
    reviews = {name for policy in policies for row in policy.observations for name in row.reviews}
    if judge in reviews - known:
        raise RunError(
            f"--judge {judge}: found a judge of the simulated human, whose table is in every "
            f"report; expected a judge of the policy ({', '.join(sorted(known)) or 'none yet'})"
        )
    if pairwise:
        compared = {
            tournament.judge for section in sections for tournament in section_tournaments(section)
        }
        if not compared:
            raise RunError(
                "--pairwise: found no policies that a judge compared; compare some first: "
                "convbench judge --pairwise A B --judge MODEL"
            )
        known |= compared
    if judge is not None and judge not in known:
        raise RunError(
            f"--judge {judge}: found verdicts of {', '.join(sorted(known)) or 'no judge'}; "
            f"expected one of these, or judge first: convbench judge --judge {judge}"
        )
