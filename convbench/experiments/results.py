"""The report of runs, or of an experiment's folder: its runs, with what is missing and the cost in
front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from convbench.engine.journal import Journal
from convbench.errors import ConvbenchError
from convbench.options.report import ReportOptions
from convbench.reports.document import Column, Part, Row, Table
from convbench.reports.report import ReportResult, make_report
from convbench.store import Run, find_run
from convbench.store.steps import (
    ExperimentPlan,
    StepEnds,
    cells_in,
    is_experiment,
    read_ends,
    read_plan,
    sort_cells,
)
from convbench.store.tables import connect_runs

CALLS = "calls.jsonl"
HERE = ("local:", "vllm:", "script", "rule:")
"""How models begin that cost nothing: on own machines, or none."""
LONGEST = 400
"""Most characters of a reason that are shown."""


def create_report(options: ReportOptions) -> ReportResult:
    """Return the report of these runs and their evaluations, by default of the newest run, or of an
    experiment's folder; nothing is written.

    Raise RunError if there is nothing to report, a judge or policy is unknown, or runs are not
    comparable; in an experiment they get a note.
    """
    if len(options.runs) == 1 and is_experiment(options.runs[0]):
        return experiment_report(options.runs[0], options)
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    return make_report(runs, options)


def report_folder(options: ReportOptions, result: ReportResult) -> Path:
    """Return the default folder of a report's files: the run's folder of reports, or `report` in
    the experiment's folder."""
    if len(options.runs) == 1 and is_experiment(options.runs[0]):
        return options.runs[0] / "report"
    return result.runs[0].reports_folder


def experiment_report(root: Path, options: ReportOptions | None = None) -> ReportResult:
    """Return the report of an experiment's folder; runs that are not comparable get a note. Raise
    RunError if the plan or the record of its steps is damaged."""
    options = options or ReportOptions()
    plan, ends = read_plan(root), read_ends(root)
    runs: list[Run] = []
    unread: list[tuple[str, str]] = []
    for path in sort_cells(plan, cells_in(root)):
        try:
            run = Run.open(path)
            connect_runs([run, *run.child_runs()], ("conversations", "verdicts")).close()
            runs.append(run)
        except ConvbenchError as error:
            unread.append((path.name, str(error)))
    missing = missing_part(plan, ends, unread)
    front = (*((missing,) if missing else ()), cost_part(runs, ends))
    options = replace(options, paper=options.paper or plan.printed)
    title = plan.title or f"Experiment {root.resolve().name}"
    return make_report(runs, options, title=title, front=front)


def missing_part(
    plan: ExperimentPlan, ends: StepEnds, unread: Sequence[tuple[str, str]]
) -> Part | None:
    """Return the part on steps that failed, or in which something failed, and runs that cannot be
    read; None if nothing is missing. Steps that a plan no longer lists are left out."""
    known = set(plan.steps) or ends.keys()
    bad = [end for end in ends.values() if not end.done or end.reasons]
    listed = [
        (f"{end.cell}: {end.name}", "; ".join(end.reasons) or "no message")
        for end in bad
        if end.address in known
    ]
    rows = tuple(Row((what, _shortened(why))) for what, why in (*listed, *unread))
    if not rows:
        return None
    columns = (Column("what", "What", text=True), Column("why", "Why", text=True))
    return Part("Missing", (), (Table("missing", "Missing", columns, rows),))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass
class _Cost:
    """Cost of a cell, or of all."""

    conversations: float = 0.0
    judges: float = 0.0
    total: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    unpriced: int = 0
    """Conversations and verdicts whose price is unknown."""


def cost_part(runs: Sequence[Run], ends: StepEnds) -> Part:
    """Return the part with dollars, tokens and hours, a row for each cell with its evaluations and
    a last one for all."""
    costs = {run.path.name: _cell_cost(run) for run in runs}
    for end in ends.values():
        costs.setdefault(end.cell, _Cost()).seconds += end.seconds
    every = _Cost()
    for each in fields(_Cost):
        setattr(every, each.name, sum(getattr(one, each.name) for one in costs.values()))
    rows = tuple(_cost_row(name, cost) for name, cost in (*costs.items(), ("All", every)))
    dollars = ("conversations", "judges", "lost", "total")
    columns = (
        Column("cell", "Cell", text=True),
        *(Column(name, f"{name} ($)", f"{name[:6]}. $", 4) for name in dollars),
        Column("tokens", "tokens"),
        Column("hours", "hours", digits=2),
    )
    notes = [
        "With the evaluations of every learner. Lost: attempts without a reply, at their highest "
        "cost, and replies that are in no record. Models on own machines count as free.",
    ]
    if every.unpriced:
        notes.append(
            f"Price unknown for {every.unpriced} conversations and verdicts: the total is more."
        )
    table = Table("cost", "Cost and time", columns, rows, tuple(notes))
    return Part("Cost and time", (), (table,))


def _cost_row(name: str, cost: _Cost) -> Row:
    lost = max(0.0, cost.total - cost.conversations - cost.judges)
    hours = cost.seconds / 3600
    return Row((name, cost.conversations, cost.judges, lost, cost.total, cost.tokens, hours))


COSTS = """
SELECT 'conversation', run, NULL AS fingerprint, coalesce(sum(cost_usd), 0), count(*) FILTER
  (WHERE cost_usd IS NULL), coalesce(sum(prompt_tokens + completion_tokens), 0)
FROM conversations GROUP BY run
UNION ALL
SELECT 'verdict', r.run, v.fingerprint, coalesce(sum(v.cost_usd), 0), count(*) FILTER
  (WHERE v.cost_usd IS NULL), coalesce(sum(v.prompt_tokens + v.completion_tokens), 0)
FROM raw.verdicts v JOIN raw.runs r USING (run_no) GROUP BY r.run, v.fingerprint
"""


def _cell_cost(run: Run) -> _Cost:
    """Return the cost of a run with its evaluations."""
    members = [run, *run.child_runs()]
    cost = _Cost()
    connection = connect_runs(members, ("conversations", "verdicts"))
    try:
        found = connection.execute(COSTS).fetchall()
    finally:
        connection.close()
    for kind, run_id, mark, dollars, unknown, tokens in found:
        member = next(each for each in members if each.manifest.id == run_id)
        cost.tokens += int(tokens)
        if kind == "conversation":
            cost.conversations += dollars
        else:
            cost.judges += dollars
        if any(not model.startswith(HERE) for model in _models(member, mark)):
            cost.unpriced += unknown
    journals = [Journal(file).total_cost() for file in sorted(run.path.rglob(CALLS))]
    cost.tokens = max(cost.tokens, sum(count for count, _ in journals))
    spent = sum(usd or 0.0 for _, usd in journals)
    cost.total = max(cost.conversations + cost.judges, spent)
    return cost


def _models(run: Run, mark: str | None) -> Iterator[str]:
    """Yield the models of a run's speakers, or of a judge."""
    if mark is None:
        yield from (member.model for member in run.manifest.cast.values())
    elif (spec := run.judge_specs().get(mark)) is not None and spec.model is not None:
        yield spec.model
