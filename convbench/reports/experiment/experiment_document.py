"""Read an experiment's folder and make its document: tables, pictures, cost, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from convbench.engine.journal import Journal
from convbench.errors import ConvbenchError, MissingDependency
from convbench.reports.document import Cell, Column, Document, Picture, ReportPart, Table
from convbench.reports.experiment.gallery import gallery_part
from convbench.reports.experiment.pattern_tables import pattern_parts
from convbench.reports.experiment.pictures import curves_by_size, curves_by_turns, radar_of
from convbench.reports.experiment.printed import (
    PublishedComparison,
    order_table,
    printed_part,
    published_comparisons,
)
from convbench.reports.experiment.statements import statement_table
from convbench.reports.experiment.steps import (
    FILE,
    PLAN,
    ExperimentPlan,
    StepEnd,
    StepEnds,
    read_ends,
    read_plan,
    sort_cells,
)
from convbench.reports.layout import judges_of, report_document
from convbench.reports.plots.draw import with_pictures
from convbench.reports.plots.style import Page, drawing_style
from convbench.reports.policies import Policy, read_policy
from convbench.reports.published import CITATION, DEFAULT_TURNS, reference_of
from convbench.reports.sections import Section, group_sections
from convbench.reports.tables import reference_table
from convbench.schema import Turn
from convbench.stats.means import ErrorKind
from convbench.store import Run

CALLS = "calls.jsonl"
STATEMENTS = "The paper's statements"
"""Title of the part with what the paper says of its tables."""
HERE = ("local:", "vllm:")
"""Prefixes of models on own machines, whose calls have no price."""


@dataclass
class CellCost:
    """Cost of a cell, or of all cells."""

    conversations: float = 0.0
    """Dollars of the calls whose replies are in conversations."""
    judges: float = 0.0
    """Dollars of the calls whose replies are in verdicts."""
    total: float = 0.0
    """Dollars of all calls, including lost attempts and replies that no record holds."""
    tokens: int = 0
    unpriced: int = 0
    """Number of conversations and verdicts whose provider's price is unknown."""
    seconds: float = 0.0
    unread: int = 0
    """Number of runs whose records cannot be read."""

    def add(self, other: CellCost) -> None:
        """Add another cost to this one in place, field by field."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def cost_table(runs: Sequence[Run], ends: StepEnds) -> Table:
    """Return the table of dollars, tokens and hours, a row for each cell and a last row `All`.

    A cell's row includes its evaluations. Cells without a run that have steps in
    `ends` have a row too. A `+ ?` after a total means that some prices are unknown. Runs that
    cannot be read are counted in a note.
    """
    costs = {run.path.name: _cell_cost(run, ends) for run in runs}
    for cell in dict.fromkeys(end.cell for end in ends.values()):
        costs.setdefault(cell, CellCost(seconds=_cell_seconds(cell, ends)))
    everything = CellCost()
    for cost in costs.values():
        everything.add(cost)
    rows = [_cost_row(name, cost) for name, cost in costs.items()]
    rows.append(_cost_row("All", everything))
    columns = (
        Column("Cell", "Cell", numeric=False),
        Column("conversations ($)", "conv. $"),
        Column("judges ($)", "judges $"),
        Column("lost, unused ($)", "lost $"),
        Column("total ($)", "total $"),
        Column("tokens", "tokens"),
        Column("hours", "hours"),
    )
    return Table("Cost and time", columns, tuple(rows), tuple(_cost_notes(everything)), "cost")


def _cost_notes(total: CellCost) -> Iterator[str]:
    yield (
        "A cell includes its conversations, judging and the evaluation of every learner. "
        "Lost, unused: attempts without a reply, at their highest possible cost, and replies that "
        "are in no record. Dollars are as reported by the provider, otherwise from its price list; "
        "models on your own machines count as free. Hours: duration of the steps, all attempts "
        "together."
    )
    if total.unpriced:
        yield (
            f"Price unknown for {total.unpriced} conversations and verdicts: the true total is "
            "more."
        )
    if total.unread:
        yield f"Records of {total.unread} runs cannot be read: see Missing."


def _cost_row(name: str, cost: CellCost) -> tuple[Cell, ...]:
    lost = max(0.0, cost.total - cost.conversations - cost.judges)
    more = "+ ?" if cost.unpriced else ""
    hours = f"{cost.seconds / 3600:.2f}" if cost.seconds else "-"
    return (
        Cell(name),
        Cell(f"{cost.conversations:.4f}"),
        Cell(f"{cost.judges:.4f}"),
        Cell(f"{lost:.4f}"),
        Cell(f"{cost.total:.4f}{more}"),
        Cell(f"{cost.tokens:,}"),
        Cell(hours),
    )


def _cell_cost(run: Run, ends: StepEnds) -> CellCost:
    """Return the cost of a run with its evaluations."""
    cost = CellCost(seconds=_cell_seconds(run.path.name, ends))
    tokens = 0
    for path in sorted({run.path, *(file.parent for file in run.path.rglob("run.json"))}):
        try:
            tokens += _add_record_costs(Run.open(path), cost)
        except ConvbenchError:  # also listed as missing
            cost.unread += 1
    journals = [Journal(path).total_cost() for path in sorted(run.path.rglob(CALLS))]
    cost.tokens = max(tokens, sum(count for count, _ in journals))
    cost.total = max(cost.conversations + cost.judges, sum(usd for _, usd in journals))
    return cost


def _add_record_costs(run: Run, cost: CellCost) -> int:
    """Add the cost in a run's records to the total; return the number of their tokens."""
    tokens = 0
    cast = run.manifest.cast
    for talk in run.conversations():
        called_turns = [turn for turn in talk.turns if turn.is_of_model]
        cost.conversations += sum(turn.cost_usd or 0.0 for turn in called_turns)
        cost.unpriced += any(
            _is_unpriced(turn, cast[turn.speaker].model)
            for turn in called_turns
            if turn.speaker in cast
        )
        tokens += _token_count(
            (turn.prompt_tokens, turn.completion_tokens) for turn in called_turns
        )
    specs = run.judge_specs()
    for verdict in run.verdict_rows():
        cost.judges += verdict.cost_usd or 0.0
        spec = specs.get(verdict.fingerprint)
        model = spec.model if spec else None
        cost.unpriced += bool(model and verdict.cost_usd is None and not model.startswith(HERE))
        tokens += _token_count([(verdict.prompt_tokens, verdict.completion_tokens)])
    return tokens


def _is_unpriced(turn: Turn, model: str) -> bool:
    return turn.cost_usd is None and not model.startswith(HERE)


def _token_count(counts: Iterable[tuple[int | None, int | None]]) -> int:
    return sum((prompt or 0) + (reply or 0) for prompt, reply in counts)


def _cell_seconds(cell: str, ends: StepEnds) -> float:
    return sum(end.seconds for end in ends.values() if end.cell == cell)


def cells_in(root: Path) -> list[Path]:
    """Return the subfolders that have a `run.json`, sorted by path, without symbolic links; empty
    if there is no such folder."""
    folders = (file.parent for file in root.glob("*/run.json"))
    return sorted(path for path in folders if not path.is_symlink())


CELL = re.compile(r"-seed\d+$")
"""Pattern of the end of a cell folder's name."""
SHOWN = 400
"""Most characters shown of a reason."""


@dataclass(frozen=True)
class ExperimentResults:
    """The contents of an experiment's folder."""

    runs: tuple[Run, ...]
    sections: tuple[Section, ...]
    ends: StepEnds
    plan: ExperimentPlan
    unread: tuple[tuple[str, str], ...] = ()
    """(run, reason) for runs that cannot be read, or have no conversations of the split yet."""

    def failed_steps(self) -> list[StepEnd]:
        """Return the steps that failed, or that ended well but reported reasons, in the order of
        the record.

        If there is a plan, steps that it does not list are left out.
        """
        addresses = set(self.plan.steps) or self.ends.keys()
        bad = (end for end in self.ends.values() if not end.done or end.reasons)
        return [end for end in bad if end.address in addresses]


def is_experiment(folder: Path) -> bool:
    """Return True if a folder has no `run.json`, but has `plan.json`, `steps.jsonl` or a run folder
    named `…-seedN`."""
    if (folder / "run.json").exists():
        return False
    cells = any(CELL.search(path.name) for path in cells_in(folder))
    return cells or any((folder / name).exists() for name in (PLAN, FILE))


def read_experiment(root: Path, split: str = "test") -> ExperimentResults:
    """Return an experiment's runs, sections, plan and ends of steps.

    Runs that cannot be read, and those without conversations of the split, are listed in `unread`
    with the reason. If the runs have several seeds, policies of one name are pooled. Policies that
    are not comparable get a note. Raise RunError if `plan.json` or `steps.jsonl` is damaged.
    """
    runs: list[Run] = []
    families: list[list[Policy]] = []
    unread: list[tuple[str, str]] = []
    plan = read_plan(root)
    for path in sort_cells(plan, cells_in(root)):
        try:
            run = Run.open(path)
            runs.append(run)
            families.append(_read_family(run, split, unread))
        except ConvbenchError as error:
            unread.append((path.name, str(error)))
    pool = len({run.manifest.seed for run in runs}) > 1
    known = [family for family in families if family]
    sections = group_sections(known, split, pool=pool, allow=True)
    return ExperimentResults(tuple(runs), tuple(sections), read_ends(root), plan, tuple(unread))


def _read_family(run: Run, split: str, unread: list[tuple[str, str]]) -> list[Policy]:
    """Return a run's own policy and those of its evaluations that have conversations. What is left
    out is appended to `unread`."""
    policies = [read_policy(run, split)]
    for path in cells_in(run.evals_folder):
        try:
            policies.append(read_policy(Run.open(path), split, run))
        except ConvbenchError as error:
            unread.append((f"{run.path.name}/{path.name}", str(error)))
    observed = [policy for policy in policies if policy.observations]
    unread += [
        (f"{run.path.name}, {policy.name}", f"no conversation of split {split} yet")
        for policy in policies
        if not policy.observations
    ]
    return observed


def experiment_document(
    experiment: ExperimentResults,
    title: str,
    *,
    kind: ErrorKind = "clustered",
    plots: bool = True,
    page: Page | None = None,
    against: Sequence[str] = (),
) -> Document:
    """Return the document of an experiment; nothing is written.

    Its parts are an overview, the paper's statements, the printed tables with our results, other
    sections, those of them that other papers print with our results, language patterns (only with
    `plots`), what is missing, cost, and sample conversations. `kind` is the kind of standard
    errors. `against` names further policies that all are compared with, as they are with every
    model that is not trained. Without matplotlib the overview says that there are no pictures.
    """
    if plots:
        try:
            names = (policy.name for section in experiment.sections for policy in section.policies)
            with drawing_style(names, page):
                return _experiment_document(experiment, title, kind, True, (), against)
        except MissingDependency as error:
            return _experiment_document(
                experiment, title, kind, False, (f"No pictures: {error}",), against
            )
    return _experiment_document(experiment, title, kind, False, (), against)


def _experiment_document(
    experiment: ExperimentResults,
    title: str,
    kind: ErrorKind,
    plots: bool,
    facts: Sequence[str],
    against: Sequence[str],
) -> Document:
    shown = (section for section in experiment.sections if len(section.policies) > 2)
    others = (p.name for section in shown for p in section.policies if p.is_other_model)
    against = tuple(dict.fromkeys((*against, *others)))
    comparisons = published_comparisons(experiment.sections, experiment.ends, experiment.plan.steps)
    known = [comparison for comparison in comparisons if comparison.is_planned]
    unmatched = _without_table(experiment.sections, known)
    parts = [
        _overview_part(experiment, known, (*_reference_facts(unmatched), *facts)),
        _statements_part(known, kind),
        *_printed_parts(known, kind, plots, against),
        *_other_parts(unmatched, kind, plots, against),
        *_reference_parts(unmatched, kind),
        *(pattern_parts(experiment.sections) if plots else ()),
        _missing_part(
            experiment,
            [comparison for comparison in comparisons if not comparison.is_planned]
            if known
            else [],
        ),
        ReportPart("Cost and time", tables=(cost_table(experiment.runs, experiment.ends),)),
        gallery_part(experiment.sections),
    ]
    return Document(title, tuple(part for part in parts if part is not None), is_standalone=True)


def _overview_part(
    experiment: ExperimentResults, known: Sequence[PublishedComparison], facts: Sequence[str]
) -> ReportPart:
    """Return the part with a summary in a few lines, and the agreement of the orders."""
    cells = len(experiment.runs)
    lines = [f"{cells} cell{'' if cells == 1 else 's'}."]
    if known:
        here = len(
            {comparison.printed.number for comparison in known if comparison.section is not None}
        )
        expected = len({comparison.printed.number for comparison in known})
        lines.append(
            f"{here} of {expected} printed tables are compared with our results. Printed: "
            f"{CITATION}. Compare ours with ours and theirs with theirs: differences in setup are "
            "noted with each table."
        )
    bad = sum(not end.done for end in experiment.failed_steps())
    if bad or experiment.unread:
        steps = "1 step" if bad == 1 else f"{bad} steps"
        lines.append(f"{steps} failed, {len(experiment.unread)} runs not read: see Missing.")
    order = order_table(known)
    return ReportPart("Overview", (*lines, *facts), (order,) if order is not None else ())


def _statements_part(known: Sequence[PublishedComparison], kind: ErrorKind) -> ReportPart | None:
    """Return the part with the paper's statements about these tables; None without one."""
    table = statement_table(known, kind)
    return None if table is None else ReportPart(STATEMENTS, tables=(table,))


def _printed_parts(
    known: Sequence[PublishedComparison],
    kind: ErrorKind,
    plots: bool,
    against: Sequence[str],
) -> Iterator[ReportPart]:
    """Yield a part for each printed table, with its pictures."""
    longer = [
        comparison
        for comparison in known
        if comparison.printed.turns > DEFAULT_TURNS and comparison.section
    ]
    for comparison in known:
        rule = kind if comparison.section else "naive"
        part = printed_part(comparison, rule, against)
        pictures: list[Picture | None] = []
        if plots and comparison.section is not None:
            pictures.append(radar_of(comparison, rule))
            pictures.append(
                curves_by_size(comparison, rule) if comparison.printed.by_size else None
            )
            last = bool(longer) and comparison is longer[-1]
            pictures.append(curves_by_turns(longer, rule) if last else None)
        yield replace(part, pictures=tuple(p for p in pictures if p is not None))


def _without_table(
    sections: Sequence[Section], known: Sequence[PublishedComparison]
) -> list[Section]:
    """Return the sections without a printed table."""
    settings = {
        (
            comparison.section.task,
            comparison.section.mode,
            comparison.section.protocol,
            comparison.section.turns,
        )
        for comparison in known
        if comparison.section is not None
    }
    return [s for s in sections if (s.task, s.mode, s.protocol, s.turns) not in settings]


def _other_parts(
    unmatched: Sequence[Section], kind: ErrorKind, plots: bool, against: Sequence[str]
) -> Iterator[ReportPart]:
    """Yield the usual report's parts for sections without a printed table."""
    if not unmatched:
        return
    report = report_document(unmatched, kind=kind, against=against)
    if plots:
        report = with_pictures(report, unmatched, kind=kind)
    yield from report.parts


def _reference_facts(sections: Sequence[Section]) -> list[str]:
    """Return a line on each other paper whose printed table stands beside our results."""
    tables = (reference_of(s.protocol, s.base.model if s.base else "") for s in sections)
    papers = dict.fromkeys((t.authors, t.citation) for t in tables if t is not None)
    return [
        f"Results of {authors} stand beside ours in the parts named Printed: {citation}."
        for authors, citation in papers
    ]


def _reference_parts(sections: Sequence[Section], kind: ErrorKind) -> Iterator[ReportPart]:
    """Yield a part with the printed table of another paper for each section and judge that it has
    one for, with our results in it."""
    for section in sections:
        for judge in judges_of(section, None):
            table = reference_table(section, judge, kind)
            if table is not None:
                named = f", judge {judge}" if judge else ""
                caption = f"{table.caption}, with our results"
                yield ReportPart(
                    f"Printed: {section.title}{named}", tables=(replace(table, caption=caption),)
                )


def _missing_part(
    experiment: ExperimentResults, not_asked: Sequence[PublishedComparison]
) -> ReportPart | None:
    """Return the part that lists what is missing and why; None if nothing is."""
    rows = [
        (
            Cell(f"{end.cell}: {end.name}"),
            Cell(_shorten_reason("; ".join(end.reasons) or "no message")),
        )
        for end in experiment.failed_steps()
    ]
    rows += [(Cell(name), Cell(_shorten_reason(why))) for name, why in experiment.unread]
    rows += [
        (Cell(comparison.title), Cell(comparison.missing[""]))
        for comparison in not_asked
        if not comparison.section
    ]
    if not rows:
        return None
    columns = (Column("What", "What", numeric=False), Column("Why", "Why", numeric=False))
    notes = ("Steps that failed, or in which something failed, as their record says.",)
    table = Table("Missing", columns, tuple(rows), notes, "missing")
    return ReportPart("Missing", tables=(table,))


def _shorten_reason(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
