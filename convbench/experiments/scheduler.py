"""Schedule steps concurrently as far as their claims on devices, the CPU and calls allow."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.engine.jobs import stopped_together
from convbench.errors import ConvbenchError
from convbench.experiments.cells import (
    PlannedStep,
    model_reference,
    rounds_options,
    train_options,
    with_teacher_devices,
    without_address,
)
from convbench.experiments.training import check_trainable, samples_first
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import resolve_judge
from convbench.learn import launch as launching
from convbench.models.aliases import resolve
from convbench.models.devices import Placement, list_devices
from convbench.models.open import policy_or_default
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import parse_devices
from convbench.rollout.calls import device_placement, is_engine
from convbench.schema.recipe import LaunchSpec
from convbench.schema.run import Role

TOLERANCE = 1e-9
"""Tolerance for sums of decimal shares."""


@dataclass(frozen=True)
class ScheduledTask:
    """A task with the resources that it claims."""

    name: str
    after: tuple[str, ...] = ()
    """Tasks that must have ended before, with whatever outcome; unknown names are ignored."""
    placements: Sequence[Mapping[str, float]] = ({},)
    """Alternative placements, each with its claims while the task runs: the share of each resource,
    above 0 and at most 1 (all of it). The task gets the first placement that is free."""


def is_serial(tasks: Sequence[ScheduledTask]) -> bool:
    """Return True if no two tasks can run at once, since all claim all of one resource; also
    without tasks."""
    wholes = [
        {name for name, share in claims.items() if share >= 1}
        for task in tasks
        for claims in task.placements
    ]
    return not wholes or bool(set.intersection(*wholes))


def run_tasks(
    tasks: Sequence[ScheduledTask], do: Callable[[int, int], None], max_threads: int = 16
) -> None:
    """Call `do(number of the task, number of its placement)` for every task, in threads if several
    can run at once; numbers count from 0.

    Tasks begin in the order of the list: one that waits for a resource keeps later ones from it. If
    `do` raises, or on an interrupt, running tasks are stopped (`engine.jobs.stoppable`) and waited
    for, no other begins, and the exception is raised here. `do` must handle failures that concern
    only its task.
    """
    if is_serial(tasks):
        for number in range(len(tasks)):
            do(number, 0)
        return
    with _interrupt_on_sigterm(), stopped_together(max_threads) as threads:
        _TaskRun(tasks, do, threads, max_threads).run_all()


class _TaskRun:
    """State of a schedule: running and waiting tasks, and the resources in use."""

    def __init__(
        self,
        tasks: Sequence[ScheduledTask],
        do: Callable[[int, int], None],
        threads: ThreadPoolExecutor,
        max_threads: int,
    ) -> None:
        self.tasks, self.do, self.threads, self.max_threads = tasks, do, threads, max_threads
        self.names = {task.name for task in tasks}
        self.waiting = list(range(len(tasks)))
        self.running: dict[Future[None], tuple[int, int]] = {}
        self.taken: dict[str, float] = defaultdict(float)
        self.ended: set[str] = set()

    def run_all(self) -> None:
        """Run all tasks."""
        while self.waiting or self.running:
            for number, position in self._iter_startable():
                self._start_task(number, position)
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            for future in done:
                self._end_task(future)

    def _iter_startable(self) -> Iterator[tuple[int, int]]:
        """Yield (task, placement) of those that may begin now; the caller begins each before it
        takes the next."""
        reserved: set[str] = set()
        for number in tuple(self.waiting):
            task = self.tasks[number]
            if len(self.running) >= self.max_threads:
                return
            if any(name in self.names and name not in self.ended for name in task.after):
                continue
            free = (
                n for n, claims in enumerate(task.placements) if self._is_free(claims, reserved)
            )
            if (position := next(free, None)) is not None:
                yield number, position
            else:
                reserved |= {name for claims in task.placements for name in claims}

    def _is_free(self, claims: Mapping[str, float], reserved: set[str]) -> bool:
        fits = all(self.taken[name] + share <= 1 + TOLERANCE for name, share in claims.items())
        return fits and not reserved & claims.keys()

    def _start_task(self, number: int, position: int) -> None:
        self.waiting.remove(number)
        self._claim_resources(number, position, 1)
        self.running[self.threads.submit(self.do, number, position)] = number, position

    def _claim_resources(self, number: int, position: int, sign: int) -> None:
        for name, share in self.tasks[number].placements[position].items():
            self.taken[name] += sign * share

    def _end_task(self, future: Future[None]) -> None:
        number, position = self.running.pop(future)
        self._claim_resources(number, position, -1)
        self.ended.add(self.tasks[number].name)
        future.result()


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


CPU, CALLS = "cpu", "calls"
CALL_SHARE = 0.25
"""Share of calls to remote models that a step claims: four steps call at once, each up to its own
`--concurrency`."""
FOLDER = Path()
"""Placeholder for a run's folder, where options are made and the folder is not read."""
Claim = tuple[str, float]


def tasks_of(
    plan: Sequence[PlannedStep], options: ExperimentOptions
) -> tuple[list[ScheduledTask], list[list[ExperimentOptions]]]:
    """Return (the steps as tasks, the options of each step for each of its placements).

    Steps of a cell share its folder and run in order; a training on several cells follows all of
    them."""
    last: dict[str, str] = {}
    tasks: list[ScheduledTask] = []
    options_by_placement: list[list[ExperimentOptions]] = []
    for number, planned in enumerate(plan):
        logs = planned.step.pooled if planned.step.kind == "train" else ()
        cell_names = [cell.name for cell in logs or (planned.step.cell,)]
        name = f"{number} {planned.step.address}"
        after = tuple(last[cell] for cell in cell_names if cell in last)
        step_options = options_per_device(planned, options, cards_of_step(plan, options))
        tasks.append(
            ScheduledTask(
                name,
                after,
                [
                    _sum_claims(_step_claims(planned, options_variant))
                    for options_variant in step_options
                ],
            )
        )
        options_by_placement.append(step_options)
        last |= dict.fromkeys(cell_names, name)
    return tasks, options_by_placement


def cards_of_step(plan: Sequence[PlannedStep], options: ExperimentOptions) -> int:
    """Return on how many devices a step's vLLM may have copies: this machine's, divided by the
    cells that run side by side."""
    cells = len({planned.step.cell.name for planned in plan})
    return len(list_devices()) // max(1, cells)


def options_per_device(
    planned: PlannedStep, options: ExperimentOptions, cards: int
) -> list[ExperimentOptions]:
    """Return the step's options once for each group of devices it could run on, pinned to that
    group: as many devices as the step uses, so that other steps get the rest."""
    calls = with_teacher_devices(planned.step, planned.spec, options.calls)
    options = replace(options, calls=calls)
    devices, count = parse_devices(options.calls.devices), len(list_devices())
    counts = _device_counts(planned, options, cards)
    pools: dict[Role, tuple[int, ...]] = {}
    for role, used in counts.items():
        pool = devices.for_role(role)
        if pool is None or len(pool) > used:
            pools[role] = tuple(range(count)) if pool is None else pool
    size = max((counts[role] for role in pools), default=1)
    by_devices: dict[tuple[str, ...], ExperimentOptions] = {}
    for first in range(0, count - size + 1, size):
        parts = {role: [first + n for n in range(counts[role])] for role in pools}
        inside = {role for role, pool in pools.items() if set(parts[role]) <= set(pool)}
        if inside:
            for role in pools.keys() - inside:
                parts[role] = list(pools[role][: counts[role]])
            pinned = tuple(f"{role}={part}" for role, part in parts.items())
            calls = replace(options.calls, devices=(*options.calls.devices, *pinned))
            by_devices.setdefault(pinned, replace(options, calls=calls))
    return list(by_devices.values()) or [options]


def _device_counts(planned: PlannedStep, options: ExperimentOptions, cards: int) -> dict[Role, int]:
    """Return how many devices each role uses in this step: one for the local engine, for vLLM as
    many of `cards` as its copies fill; one a process for a training. A role that is not there gets
    all of its devices: a vLLM that is spread over those that the user names, a training that
    samples or judges first."""
    step, devices = planned.step, parse_devices(options.calls.devices)
    counts: dict[Role, int] = {}
    for role, models in models_of_step(planned, options).items():
        if not any(is_engine(ref, None) for ref in models):
            continue
        if any(ref.startswith("local:") for ref in models):
            counts[role] = 1
        elif devices.for_role(role) is None:
            split = (device_placement(options.calls, role) or Placement()).split
            counts[role] = split * max(1, cards // split)
    if step.kind == "train" and (processes := _count_processes(planned, options)) is not None:
        counts["trainer"] = processes
    return counts


def _count_processes(planned: PlannedStep, options: ExperimentOptions) -> int | None:
    """Return the processes that a training's launch asks for, one where there are fewer devices;
    None if it takes what it needs, or samples first."""
    training = train_options(planned.step, planned.spec, FOLDER, options)
    try:
        recipe = check_trainable(training)
        name = training.launch or recipe.launch
        if name == "auto" or samples_first(recipe):
            return None
        folders = training.specs.folders
        count = catalog.load_spec(LaunchSpec, "launch", name, specs=folders).process_count
    except ConvbenchError:
        return None  # reported before the step
    return count if count <= len(list_devices()) else 1


def models_of_step(planned: PlannedStep, options: ExperimentOptions) -> dict[Role, set[str]]:
    """Return the models that a step calls as policy and judge: a checkpoint by the model that it
    starts from, with its engine."""
    step, devices = planned.step, parse_devices(options.calls.devices)
    models: dict[Role, set[str]] = {}
    policy = _policy_reference(planned, options)
    if step.kind in ("build", "eval"):
        if step.kind == "eval" and not step.policy and not policy.startswith("vllm:"):
            engine = "vllm" if "policy" in devices.vllm else "local"  # a checkpoint's
            policy = f"{engine}:{policy.removeprefix('local:')}"
        models["policy"] = {policy}
    if step.kind in ("judge", "eval"):
        models["judge"] = set(_judge_models(planned, options))
    return models


def _judge_models(planned: PlannedStep, options: ExperimentOptions) -> Iterator[str]:
    """Yield the models of a step's judges."""
    for name in planned.spec.judges:
        try:
            yield resolve_judge(name, options.specs.folders).model or ""
        except ConvbenchError:
            continue  # reported when the step judges


def concurrent_options(options: ExperimentOptions) -> ExperimentOptions:
    """Return the options for concurrent steps: without progress displays, which would overwrite
    each other, and on machines without accelerators with trainings in a process of their own, which
    can be stopped."""
    devices = options.calls.devices
    if not list_devices() and parse_devices(devices).trainer is None:
        devices = (*devices, "trainer=[]")
    return replace(options, calls=replace(options.calls, devices=devices, quiet=True))


def _sum_claims(claims: Iterable[Claim]) -> dict[str, float]:
    """Return the sum of the claims on each resource, at most 1."""
    sums: dict[str, float] = {}
    for name, share in claims:
        sums[name] = min(1.0, sums.get(name, 0.0) + share)
    return sums


def _step_claims(planned: PlannedStep, options: ExperimentOptions) -> Iterator[Claim]:
    """Yield the claims of a step."""
    step = planned.step
    if step.kind == "build" or step.policy:
        yield from _model_claims(_policy_reference(planned, options), "policy", options)
    elif step.kind == "eval":
        yield from _sampler_claims("policy", options)  # a checkpoint
    if step.kind in ("build", "eval") and planned.spec.teacher is not None:
        teacher = model_reference(planned.spec.teacher, options.specs.folders)
        yield from _model_claims(teacher, "teacher", options)
    if step.kind in ("judge", "eval"):
        yield from _judge_claims(planned, options)
    if step.kind == "train":
        yield from _training_claims(planned, options)


def _training_claims(planned: PlannedStep, options: ExperimentOptions) -> Iterator[Claim]:
    """Yield the claims of a training: all of its devices; for a learner that samples or judges
    first, also those of the policy and the judges."""
    names = launching.trainer_devices(options.calls)
    names = tuple(d.name for d in list_devices()) if names is None else names
    yield from ((f"device {name}", 1.0) for name in names) if names else [(CPU, 1.0)]
    if _has_preparation(planned, options):
        yield from _sampler_claims("policy", options)
        yield from _judge_claims(planned, options)


def _has_preparation(planned: PlannedStep, options: ExperimentOptions) -> bool:
    try:
        if rounds_options(planned.step, planned.spec, FOLDER, without_address(options)) is not None:
            return True
        training = train_options(planned.step, planned.spec, FOLDER, options)
        return samples_first(check_trainable(training))
    except ConvbenchError:
        return True  # the error is reported when the step runs


def _judge_claims(planned: PlannedStep, options: ExperimentOptions) -> Iterator[Claim]:
    for name in planned.spec.judges:
        try:
            judge = resolve_judge(name, options.specs.folders)
        except ConvbenchError:
            continue
        if judge.model is not None:
            yield from _model_claims(judge.model, "judge", options)
        elif "weights" in kind_of(judge.spec).needs:
            yield from _sampler_claims("judge", options)
        else:
            yield CPU, 1.0


def _policy_reference(planned: PlannedStep, options: ExperimentOptions) -> str:
    """Return the reference of the model that speaks as the policy where there is no checkpoint."""
    if planned.step.policy:
        return model_reference(planned.step.policy, options.specs.folders)
    calls, folders = options.calls, options.specs.folders
    try:
        name = policy_or_default(
            planned.spec.model,
            api_base=calls.api_base,
            specs=folders,
        )
        return resolve(name, api_base=calls.api_base, specs=folders).ref
    except ConvbenchError:
        return ""


def _model_claims(ref: str, role: Role, options: ExperimentOptions) -> Iterator[Claim]:
    """Yield the claims of calls to a model: its devices if it runs here, else a share of calls."""
    if ref.partition(":")[0] in ("local", "vllm"):
        yield from _sampler_claims(role, options)
    else:
        yield CALLS, CALL_SHARE


def _sampler_claims(role: Role, options: ExperimentOptions) -> Iterator[Claim]:
    devices = device_placement(options.calls, role)
    names = None if devices is None else devices.names
    names = tuple(d.name for d in list_devices()) if names is None else names
    share = (devices.share if devices is not None else None) or 1.0
    yield from ((f"device {name}", share) for name in names) if names else [(CPU, 1.0)]
