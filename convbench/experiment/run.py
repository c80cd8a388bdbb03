"""Run the steps of an experiment, concurrently if their devices allow it; a failure is recorded,
and the other steps go on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from convbench.errors import BudgetError, ConvbenchError
from convbench.experiment.cells import Part, Step
from convbench.experiment.preflight import whole
from convbench.experiment.scheduler import apart, serial, tasks_of
from convbench.experiment.scheduler import run as do_all
from convbench.experiment.step import Outcome, Record, State, do, mark, there
from convbench.options.experiment import ExperimentOptions
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import disk_error
from convbench.store.locks import folder_lock


@dataclass(frozen=True)
class Progress:
    """Progress of an experiment as a step begins."""

    address: str
    number: int
    """Number of this step, from 1."""
    of: int
    """Number of all steps."""
    failed: int
    """Steps that failed, or wait for a failed one."""


Tell = Callable[[Progress], None]


def run(
    parts: Sequence[Part], root: Path, options: ExperimentOptions, tell: Tell | None = None
) -> list[Outcome]:
    """Run or resume every step; return the outcomes in order.

    A failed step is recorded with its reason, those that need it wait, and all others go on. A
    finished step costs a look at the disk. Raises BudgetError, since no later call could be paid
    either; KeyboardInterrupt; RunError if another process runs this experiment.
    """
    with _alone(root):
        root.mkdir(exist_ok=True)
        record = Record(root)
        tasks, ways = tasks_of(parts, options)
        if not serial(tasks):
            tasks, ways = tasks_of(parts, apart(options))
        ended: dict[int, Outcome] = {}

        def step(number: int, place: int) -> None:
            one, before = parts[number], list(ended.values())
            failed = sum(outcome.state != "done" for outcome in before)
            if tell is not None and not whole(one, root, record):
                tell(Progress(one.step.address, number + 1, len(parts), failed))
            ended[number] = _one(one, root, ways[number][place], record, before)

        do_all(tasks, step)
    return [ended[number] for number in sorted(ended)]


def _one(
    one: Part, root: Path, options: ExperimentOptions, record: Record, before: Sequence[Outcome]
) -> Outcome:
    """Run one step, record its outcome and return it."""
    address, name = one.step.address, mark(one.step, one.spec)
    if whole(one, root, record):
        return Outcome(address, name, "done")
    if stopped := _missing(one, root, before):
        outcome = Outcome(address, name, "waits", (f"waits for {stopped}",))
        record.write(outcome)
        return outcome
    began = time.monotonic()
    state: State = "failed"
    said: tuple[str, ...] = ("interrupted",)
    trace = ""
    try:
        said = tuple(do(one.step, one.spec, root, options))
        state = "done"
    except BudgetError as error:
        said = (str(error),)
        raise
    except ConvbenchError as error:
        said = (str(error),)
    except Exception as error:  # noqa: BLE001 - a bug in one cell must not stop the others
        said, trace = (f"{type(error).__name__}: {error}",), traceback.format_exc()
    finally:
        seconds = round(time.monotonic() - began, 3)
        outcome = Outcome(address, name, state, said, seconds, trace)
        record.write(outcome)
    return outcome


def _missing(one: Part, root: Path, before: Sequence[Outcome]) -> str | None:
    """Return the address of the first step that this one needs and that failed or was never done,
    or None."""
    now = {outcome.address: outcome.state for outcome in before}
    for address in one.step.needs():
        if now.get(address, "done") != "done":
            return address
        if address not in now and not _was_done(address, one, root):
            return address
    return None


def _was_done(address: str, one: Part, root: Path) -> bool:
    """Return True if a step that is not selected now was done before."""
    name, kind, *rest = address.split("/")
    cell = next(cell for cell in (one.step.cell, *one.step.pooled) if cell.name == name)
    if rest and rest[0] != one.step.checkpoint:
        return Checkpoint(root / cell.name / "checkpoints" / rest[0]).finished
    if kind == "train":
        return there(replace(one.step, cell=cell, kind=kind), root)
    return there(Step(cell, kind), root)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
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
