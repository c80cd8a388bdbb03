"""Run an experiment from its spec to one report, resumable at every step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.errors import ConvbenchError, PreflightError
from convbench.experiment.cells import Part, chosen, steps_of
from convbench.experiment.estimate import Amount, estimate, total
from convbench.experiment.preflight import Preflight, preflight, whole
from convbench.experiment.room import check_room
from convbench.experiment.run import Tell, run
from convbench.experiment.step import Outcome, Record, mark
from convbench.options.experiment import ExperimentOptions
from convbench.options.report import ReportOptions
from convbench.options.shared import as_devices
from convbench.report.experiment.steps import write_plan
from convbench.report.files import WRITERS, write
from convbench.report.report import ReportResult, experiment_report
from convbench.rollout.calls import share_ledger
from convbench.schema.experiment import ExperimentSpec
from convbench.store.run import Run

AXES = ("name", "title", "tasks", "modes", "protocols", "turns", "rows", "also", "reference")
"""Fields that `--set` sets only in the named experiment, not in those that it adds (`also`)."""
NESTED = ("sets", "recipe_sets", "per_task", "per_cell", "devices")
"""Fields whose keys have dots."""
SHORT = ("task.", "protocol.")
"""`--set task.KEY=VALUE`, as build takes it, stands for `sets.task.KEY`."""


@dataclass
class Planned:
    """What an experiment has left to do."""

    parts: list[Part]
    """Steps that are not done yet."""
    amounts: dict[str, Amount] = field(default_factory=dict)
    """Estimates of what they take, by cell."""
    missing: list[str] = field(default_factory=list)
    """What is missing for them, with the fix, a line each."""
    notes: list[str] = field(default_factory=list)
    """Notes on what differs from the settings and does not stop the experiment."""

    @property
    def total(self) -> Amount:
        """The sum of the estimates."""
        return total(list(self.amounts.values()))


@dataclass
class ExperimentResult:
    """Result of an experiment, or of its dry run."""

    spec: ExperimentSpec
    root: Path
    planned: Planned
    runs: list[Path] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    """Outcome of each step, in order."""
    left: list[str] = field(default_factory=list)
    """Addresses of steps that --only or --from left out and that are not done."""
    report: ReportResult | None = None
    """The report on all cells."""
    files: list[Path] = field(default_factory=list)
    """Files of the report."""
    notes: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[Outcome]:
        """Outcomes of steps that failed, or that wait for a failed one."""
        return [one for one in self.outcomes if one.state != "done"]

    @property
    def failures(self) -> list[str]:
        """Lines on what failed, in finished and in failed steps."""
        return [f"{one.address}: {line}" for one in self.outcomes for line in one.said]

    @property
    def complete(self) -> bool:
        """Whether every selected step is done."""
        return not self.broken


def experiment(options: ExperimentOptions, tell: Tell | None = None) -> ExperimentResult:
    """Run an experiment, or resume it, and return the result; finished steps are skipped.

    A failed step is an outcome of the result, with its reason; the other steps go on. `tell` is
    called as each step begins. Raises PreflightError with all that is missing, before the first
    step; BudgetError; other ConvbenchErrors if the experiment itself is wrong; KeyboardInterrupt.
    """
    specs = loaded(options)
    root = options.root or Path("runs") / "experiments" / specs[0].name
    everything = _once(part for spec in specs for part in steps_of(spec))
    parts = chosen(everything, options.only, options.start)
    devices = (*as_devices(specs[0].devices), *options.calls.devices)
    options = replace(options, calls=replace(options.calls, devices=devices))
    inner = replace(options, specs=replace(options.specs, sets=()))
    planned = _planned(parts, root, inner)
    result = ExperimentResult(specs[0], root, planned, notes=_unmet(specs))
    if options.dry_run:
        return result
    if planned.missing:
        raise PreflightError(planned.missing)
    inner = replace(inner, calls=share_ledger(options.calls, root))
    title = f"{specs[0].name}: {specs[0].title}"
    write_plan(root, title, [part.step.address for part in everything])
    result.outcomes = run(parts, root, inner, tell)
    record = Record(root)
    skipped = [part for part in everything if part not in parts]
    result.left = [part.step.address for part in skipped if not whole(part, root, record)]
    _report(result, everything)
    return result


def _once(parts: Iterable[Part]) -> list[Part]:
    """Return the steps without duplicates: those with the same settings in two experiments."""
    return list({(part.step.address, mark(part.step, part.spec)): part for part in parts}.values())


def loaded(options: ExperimentOptions) -> list[ExperimentSpec]:
    """Return the experiment and those that it adds, in its regime, with the user's settings. A key
    that begins with the name of one of them is for that one only (`size.rows`)."""
    sets = {_long(key): value for key, value in catalog.parse_sets(options.specs.sets).items()}
    own = {key: value for key, value in sets.items() if "." not in key or _head(key) in NESTED}
    first = _load(options.name, options, own)
    names = (first.name, *first.also)
    if any(_head(key) not in names for key in sets.keys() - own.keys()):
        return [_load(options.name, options, sets)]  # raises, and names the known keys
    shared = {key: value for key, value in own.items() if _head(key) not in AXES}
    if first.regime is not None:
        shared["regime"] = first.regime
    return [
        _load(
            options.name if name == first.name else name,
            options,
            {
                **(own if name == first.name else shared),
                **{
                    key.partition(".")[2]: sets[key]
                    for key in sets.keys() - own.keys()
                    if _head(key) == name
                },
            },
        )
        for name in names
    ]


def _head(key: str) -> str:
    return key.partition(".")[0]


def _long(key: str) -> str:
    return f"sets.{key}" if key.startswith(SHORT) else key


def _load(name: str, options: ExperimentOptions, sets: dict[str, Any]) -> ExperimentSpec:
    return catalog.load(ExperimentSpec, "experiments", name, specs=options.specs.folders, sets=sets)


def _planned(parts: Sequence[Part], root: Path, options: ExperimentOptions) -> Planned:
    """Return the steps left to do, with estimates and what is missing."""
    found: Preflight = preflight(parts, root, options)
    record = Record(root)
    undone = [part for part in parts if not whole(part, root, record)]
    amounts = estimate(undone, found, options)
    check_room(found, undone, root, total(list(amounts.values())))
    return Planned(undone, amounts, found.missing, list(found.notes))


def _unmet(specs: Sequence[ExperimentSpec]) -> list[str]:
    """Return notes on settings that apply to no cell."""
    steps = [vars(part.step.cell) for spec in specs for part in steps_of(spec)]
    tasks = {cell["task"] for cell in steps}
    notes = [
        f"per_task.{name}: no cell is of this task"
        for name in specs[0].per_task
        if name not in tasks
    ]
    for number, one in enumerate(specs[0].per_cell):
        if not any(one.match.meets(cell) for cell in steps):
            notes.append(f"per_cell.{number}: no cell matches")
    return notes


def _report(result: ExperimentResult, parts: Sequence[Part]) -> None:
    """Write one report on all cells next to the runs, and add it to the result."""
    names = dict.fromkeys(part.step.cell.name for part in parts)
    paths = [result.root / name for name in names]
    result.runs = [path for path in paths if (path / "run.json").exists()]
    if not any(_judged(path) for path in result.runs):
        result.notes.append("no cell got far enough to be reported")
        return
    try:
        made = result.report = experiment_report(result.root, ReportOptions())
        result.files = write(made.document, made.folder, WRITERS)
    except ConvbenchError as error:
        result.notes.append(f"no report: {error}; try: convbench report {result.root}")


def _judged(path: Path) -> bool:
    return any(True for _ in Run.open(path).verdicts())
