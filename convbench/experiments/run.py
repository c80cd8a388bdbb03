"""Run the steps of an experiment, concurrently if their devices allow it; a failure is recorded,
and the other steps go on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from convbench.engine.session import Session
from convbench.errors import BudgetError, ConvbenchError
from convbench.experiments.cells import PlannedStep, Step
from convbench.experiments.preflight import is_complete
from convbench.experiments.scheduler import concurrent_options, is_serial, run_tasks, tasks_of
from convbench.experiments.step import (
    OutcomeRecord,
    State,
    StepOutcome,
    do_step,
    has_result,
    step_fingerprint,
)
from convbench.options.experiment import ExperimentOptions
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import disk_error
from convbench.store.locks import folder_lock


@dataclass(frozen=True)
class StepProgress:
    """Progress of an experiment as a step begins."""

    address: str
    number: int
    """Number of this step, from 1."""
    total: int
    """Number of all steps."""
    failed: int
    """Steps that failed, or wait for a failed one."""


ProgressListener = Callable[[StepProgress], None]


def run_steps(
    plan: Sequence[PlannedStep],
    root: Path,
    options: ExperimentOptions,
    session: Session,
    tell: ProgressListener | None = None,
) -> list[StepOutcome]:
    """Run or resume every step; return the outcomes in order.

    A failed step is recorded with its reason, those that need it wait, and all others go on. A
    finished step costs a look at the disk. Raises BudgetError, since no later call could be paid
    either; KeyboardInterrupt; RunError if another process runs this experiment.
    """
    with _hold_folder(root):
        root.mkdir(exist_ok=True)
        record = OutcomeRecord(root)
        tasks, options_by_placement = tasks_of(plan, options)
        if not is_serial(tasks):
            tasks, options_by_placement = tasks_of(plan, concurrent_options(options))
        ended: dict[int, StepOutcome] = {}

        def run_task(number: int, position: int) -> None:
            planned, outcomes = plan[number], list(ended.values())
            failed = sum(outcome.state != "done" for outcome in outcomes)
            if tell is not None and not is_complete(planned, root, record):
                tell(StepProgress(planned.step.address, number + 1, len(plan), failed))
            ended[number] = _run_planned(
                planned, root, options_by_placement[number][position], session, record, outcomes
            )

        run_tasks(tasks, run_task)
    return [ended[number] for number in sorted(ended)]


def _run_planned(
    planned: PlannedStep,
    root: Path,
    options: ExperimentOptions,
    session: Session,
    record: OutcomeRecord,
    outcomes: Sequence[StepOutcome],
) -> StepOutcome:
    """Run one step, record its outcome and return it."""
    address, name = planned.step.address, step_fingerprint(planned.step, planned.spec)
    if is_complete(planned, root, record):
        return StepOutcome(address, name, "done")
    if stopped := _missing_step(planned, root, outcomes):
        outcome = StepOutcome(address, name, "waits", (f"waits for {stopped}",))
        record.write(outcome)
        return outcome
    began = time.monotonic()
    state: State = "failed"
    lines: tuple[str, ...] = ("interrupted",)
    trace = ""
    try:
        lines = tuple(do_step(planned.step, planned.spec, root, options, session))
        state = "done"
    except BudgetError as error:
        lines = (str(error),)
        raise
    except ConvbenchError as error:
        lines = (str(error),)
    except Exception as error:  # noqa: BLE001 - a bug in one cell must not stop the others
        lines, trace = (f"{type(error).__name__}: {error}",), traceback.format_exc()
    finally:
        seconds = round(time.monotonic() - began, 3)
        outcome = StepOutcome(address, name, state, lines, seconds, trace)
        record.write(outcome)
    return outcome


def _missing_step(planned: PlannedStep, root: Path, outcomes: Sequence[StepOutcome]) -> str | None:
    """Return the address of the first step that this one needs and that failed or was never done,
    or None."""
    states = {outcome.address: outcome.state for outcome in outcomes}
    for address in planned.step.required_steps():
        if states.get(address, "done") != "done":
            return address
        if address not in states and not _was_done(address, planned, root):
            return address
    return None


def _was_done(address: str, planned: PlannedStep, root: Path) -> bool:
    """Return True if a step that is not selected now was done before."""
    name, kind, *checkpoint_parts = address.split("/")
    cell = next(cell for cell in (planned.step.cell, *planned.step.pooled) if cell.name == name)
    if checkpoint_parts and checkpoint_parts[0] != planned.step.checkpoint:
        return Checkpoint(root / cell.name / "checkpoints" / checkpoint_parts[0]).is_finished
    if kind == "train":
        return has_result(replace(planned.step, cell=cell, kind=kind), root)
    return has_result(Step(cell, kind), root)


@contextmanager
def _hold_folder(root: Path) -> Iterator[None]:
    """Lock an experiment by a file next to its folder. Raises RunError if another process holds it:
    between steps no run is locked, so two processes would disturb each other."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(root.parent, error) from None
    with folder_lock(
        root.parent, f"doing the experiment in {root.name}", name=f".{root.name}.lock"
    ):
        yield
