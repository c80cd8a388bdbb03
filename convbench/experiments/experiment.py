"""Run an experiment from its spec to one report, resumable at every step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.engine.session import Session
from convbench.errors import ConvbenchError, PreflightError
from convbench.experiments.amounts import ResourceEstimate, sum_estimates
from convbench.experiments.cells import PlannedStep, choose_steps, plan_steps
from convbench.experiments.estimate import check_folder, estimate_cells
from convbench.experiments.preflight import PreflightFindings, is_complete, run_preflight
from convbench.experiments.results import experiment_report
from convbench.experiments.run import ProgressListener, run_steps
from convbench.experiments.step import OutcomeRecord, StepOutcome, step_fingerprint
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import devices_as_pairs
from convbench.reports.report import ReportResult
from convbench.reports.write import WRITERS, write_report
from convbench.rollout.calls import JOURNAL_FILE, limit_spend
from convbench.schema.experiment import ExperimentSpec
from convbench.store.run import Run
from convbench.store.steps import write_plan

AXES = ("name", "title", "tasks", "modes", "protocols", "turns", "rows", "also", "reference")
"""Fields that `--set` sets only in the named experiment, not in those that it adds (`also`)."""
NESTED = ("sets", "recipe_sets", "launch", "per_task", "per_cell", "devices")
"""Fields whose keys have dots."""
SHORT = ("task.", "protocol.")
"""`--set task.KEY=VALUE`, as build takes it, stands for `sets.task.KEY`."""


@dataclass
class ExperimentPlan:
    """What an experiment has left to do."""

    steps: list[PlannedStep]
    """Steps that are not done yet."""
    amounts: dict[str, ResourceEstimate] = field(default_factory=dict)
    """Estimates of what they take, by cell."""
    missing: list[str] = field(default_factory=list)
    """What is missing for them, with the fix, a line each."""
    notes: list[str] = field(default_factory=list)
    """Notes on what differs from the settings and does not stop the experiment."""

    @property
    def total_estimate(self) -> ResourceEstimate:
        """The sum of the estimates."""
        return sum_estimates(list(self.amounts.values()))


@dataclass
class ExperimentResult:
    """Result of an experiment, or of its dry run."""

    spec: ExperimentSpec
    root: Path
    plan: ExperimentPlan
    runs: list[Path] = field(default_factory=list)
    outcomes: list[StepOutcome] = field(default_factory=list)
    """Outcome of each step, in order."""
    left: list[str] = field(default_factory=list)
    """Addresses of steps that --only or --from left out and that are not done."""
    report: ReportResult | None = None
    """The report on all cells."""
    files: list[Path] = field(default_factory=list)
    """Files of the report."""
    notes: list[str] = field(default_factory=list)

    @property
    def unfinished_steps(self) -> list[StepOutcome]:
        """Outcomes of steps that failed, or that wait for a failed one."""
        return [outcome for outcome in self.outcomes if outcome.state != "done"]

    @property
    def failure_lines(self) -> list[str]:
        """`ADDRESS: LINE` for each line on what failed, in finished steps too, in order."""
        return [f"{outcome.address}: {line}" for outcome in self.outcomes for line in outcome.said]

    @property
    def is_complete(self) -> bool:
        """Whether every selected step is done; also True for a dry run, which runs none."""
        return not self.unfinished_steps


def run_experiment(
    options: ExperimentOptions,
    tell: ProgressListener | None = None,
    session: Session | None = None,
) -> ExperimentResult:
    """Run an experiment, or resume it, and return the result; finished steps are skipped.

    A dry run returns the plan only and writes nothing.

    A failed step is an outcome of the result, with its reason; the other steps go on. `tell` is
    called as each step begins. Raise PreflightError with all that is missing, before the first
    step; BudgetError; other ConvbenchErrors if the experiment itself is wrong; KeyboardInterrupt.
    """
    specs = load_specs(options)
    root = options.root or Path("runs") / "experiments" / specs[0].name
    everything = _drop_duplicates(part for spec in specs for part in plan_steps(spec))
    parts = choose_steps(everything, options.only, options.start)
    devices = (*devices_as_pairs(specs[0].devices), *options.calls.devices)
    options = replace(options, calls=replace(options.calls, devices=devices))
    inner = replace(options, specs=replace(options.specs, sets=()))
    planned = _make_plan(parts, root, inner)
    result = ExperimentResult(specs[0], root, planned, notes=_unmet_settings(specs))
    if options.dry_run:
        return result
    if planned.missing:
        raise PreflightError(planned.missing)
    session = session or Session()
    limit_spend(session, options.calls, *sorted(root.rglob(JOURNAL_FILE)))
    title = f"{specs[0].name}: {specs[0].title}"
    addresses = [part.step.address for part in everything]
    write_plan(root, title, addresses, printed=specs[0].printed)
    result.outcomes = run_steps(parts, root, inner, session, tell)
    record = OutcomeRecord(root)
    skipped = [part for part in everything if part not in parts]
    result.left = [part.step.address for part in skipped if not is_complete(part, root, record)]
    _write_report(result, everything)
    return result


def _drop_duplicates(parts: Iterable[PlannedStep]) -> list[PlannedStep]:
    """Return the steps without duplicates: those with the same settings in two experiments."""
    return list(
        {
            (part.step.address, step_fingerprint(part.step, part.spec)): part for part in parts
        }.values()
    )


def load_specs(options: ExperimentOptions) -> list[ExperimentSpec]:
    """Return the named experiment, then those that it adds (`also`), with the user's settings.

    A key that begins with the name of one of them is for that one only (`size.rows`); other keys
    are for all, except those in AXES (`tasks`, `modes`, `rows` ...), which only the named one gets.
    Raise SpecError for an unknown experiment or key.
    """
    sets = {_full_key(key): value for key, value in catalog.parse_sets(options.specs.sets).items()}
    own = {key: value for key, value in sets.items() if "." not in key or _key_head(key) in NESTED}
    first = _load_spec(options.name, options, own)
    names = (first.name, *first.also)
    if any(_key_head(key) not in names for key in sets.keys() - own.keys()):
        return [_load_spec(options.name, options, sets)]  # raises, and names the known keys
    shared = {key: value for key, value in own.items() if _key_head(key) not in AXES}
    return [
        _load_spec(
            options.name if name == first.name else name,
            options,
            {
                **(own if name == first.name else shared),
                **{
                    key.partition(".")[2]: sets[key]
                    for key in sets.keys() - own.keys()
                    if _key_head(key) == name
                },
            },
        )
        for name in names
    ]


def _key_head(key: str) -> str:
    return key.partition(".")[0]


def _full_key(key: str) -> str:
    return f"sets.{key}" if key.startswith(SHORT) else key


def _load_spec(name: str, options: ExperimentOptions, sets: dict[str, Any]) -> ExperimentSpec:
    return catalog.load_spec(
        ExperimentSpec, "experiments", name, specs=options.specs.folders, sets=sets
    )


def _make_plan(
    parts: Sequence[PlannedStep], root: Path, options: ExperimentOptions
) -> ExperimentPlan:
    """Return the steps left to do, with estimates and what is missing."""
    findings: PreflightFindings = run_preflight(parts, root, options)
    record = OutcomeRecord(root)
    undone = [part for part in parts if not is_complete(part, root, record)]
    amounts = estimate_cells(undone, findings, options)
    check_folder(findings, root)
    return ExperimentPlan(undone, amounts, findings.missing_lines, list(findings.notes))


def _unmet_settings(specs: Sequence[ExperimentSpec]) -> list[str]:
    """Return notes on settings that apply to no cell."""
    steps = [vars(part.step.cell) for spec in specs for part in plan_steps(spec)]
    tasks = {cell["task"] for cell in steps}
    notes = [
        f"per_task.{name}: no cell is of this task"
        for name in specs[0].per_task
        if name not in tasks
    ]
    for number, setting in enumerate(specs[0].per_cell):
        if not any(setting.match.matches_cell(cell) for cell in steps):
            notes.append(f"per_cell.{number}: no cell matches")
    return notes


def _write_report(result: ExperimentResult, parts: Sequence[PlannedStep]) -> None:
    """Write one report on all cells next to the runs, and add it to the result."""
    names = dict.fromkeys(part.step.cell.name for part in parts)
    paths = [result.root / name for name in names]
    result.runs = [path for path in paths if (path / "run.json").exists()]
    if not any(_has_verdicts(path) for path in result.runs):
        result.notes.append("no cell has verdicts to report")
        return
    try:
        result.report = experiment_report(result.root)
        result.files = write_report(result.report.document, result.root / "report", WRITERS)
    except ConvbenchError as error:
        result.notes.append(f"no report: {error}; try: convbench report {result.root}")


def _has_verdicts(path: Path) -> bool:
    return any(True for _ in Run.open(path).verdicts())
