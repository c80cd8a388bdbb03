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

from convbench.engine.jobs import begin_anew, stopped_together
from convbench.errors import ConvbenchError
from convbench.experiment.cells import Part, elsewhere, rounds_options, train_options
from convbench.judge.kinds import kind_of
from convbench.judge.resolve import resolve_judge
from convbench.learn import launch as launching
from convbench.learn.start import choose_launch, sort_sets, trainable
from convbench.models.aliases import resolve
from convbench.models.devices import inventory
from convbench.models.open import policy_or_default
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import devices_of
from convbench.rollout.calls import placement
from convbench.schema.run import Role

ALMOST = 1e-9
"""Tolerance for sums of decimal shares."""


@dataclass(frozen=True)
class Task:
    """A task with the resources that it claims."""

    name: str
    after: tuple[str, ...] = ()
    """Tasks that must have ended before, with whatever outcome; unknown names are ignored."""
    places: Sequence[Mapping[str, float]] = ({},)
    """Alternative placements, each with its claims while the task runs: the share of each resource,
    above 0 and at most 1 (all of it). The task gets the first placement that is free."""


def serial(tasks: Sequence[Task]) -> bool:
    """Return True if no two tasks can run at once, since all claim all of one resource."""
    wholes = [
        {name for name, share in claims.items() if share >= 1}
        for task in tasks
        for claims in task.places
    ]
    return not wholes or bool(set.intersection(*wholes))


def run(tasks: Sequence[Task], do: Callable[[int, int], None], most: int = 16) -> None:
    """Call `do(number of the task, number of its placement)` for every task, in threads if several
    can run at once; numbers count from 0.

    Tasks begin in the order of the list: one that waits for a resource keeps later ones from it. If
    `do` raises, or on an interrupt, running tasks are stopped (`engine.jobs.stoppable`) and waited
    for, no other begins, and the exception is raised here. `do` must handle failures that concern
    only its task.
    """
    if serial(tasks):
        for number in range(len(tasks)):
            do(number, 0)
        return
    with _terminated():
        try:
            with ThreadPoolExecutor(most, "step") as threads, stopped_together():
                _Run(tasks, do, threads, most).all()
        finally:
            begin_anew()


class _Run:
    """State of a schedule: running and waiting tasks, and the resources in use."""

    def __init__(
        self,
        tasks: Sequence[Task],
        do: Callable[[int, int], None],
        threads: ThreadPoolExecutor,
        most: int,
    ) -> None:
        self.tasks, self.do, self.threads, self.most = tasks, do, threads, most
        self.names = {task.name for task in tasks}
        self.waiting = list(range(len(tasks)))
        self.running: dict[Future[None], tuple[int, int]] = {}
        self.taken: dict[str, float] = defaultdict(float)
        self.ended: set[str] = set()

    def all(self) -> None:
        """Run all tasks."""
        while self.waiting or self.running:
            for number, place in self._startable():
                self._start(number, place)
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            for future in done:
                self._end(future)

    def _startable(self) -> Iterator[tuple[int, int]]:
        """Yield (task, placement) of those that may begin now; the caller begins each before it
        takes the next."""
        wanted: set[str] = set()
        for number in tuple(self.waiting):
            task = self.tasks[number]
            if len(self.running) >= self.most:
                return
            if any(name in self.names and name not in self.ended for name in task.after):
                continue
            free = (n for n, claims in enumerate(task.places) if self._free(claims, wanted))
            if (place := next(free, None)) is not None:
                yield number, place
            else:
                wanted |= {name for claims in task.places for name in claims}

    def _free(self, claims: Mapping[str, float], wanted: set[str]) -> bool:
        fits = all(self.taken[name] + share <= 1 + ALMOST for name, share in claims.items())
        return fits and not wanted & claims.keys()

    def _start(self, number: int, place: int) -> None:
        self.waiting.remove(number)
        self._take(number, place, 1)
        self.running[self.threads.submit(self.do, number, place)] = number, place

    def _take(self, number: int, place: int, sign: int) -> None:
        for name, share in self.tasks[number].places[place].items():
            self.taken[name] += sign * share

    def _end(self, future: Future[None]) -> None:
        number, place = self.running.pop(future)
        self._take(number, place, -1)
        self.ended.add(self.tasks[number].name)
        future.result()


@contextmanager
def _terminated() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


CPU, CALLS, MONEY = "cpu", "calls", "budget"
ASKING = 0.25
"""Share of calls to remote models that a step claims: four steps call at once, each up to its own
`--concurrency`."""
FOLDER = Path()
"""Placeholder for a run's folder, where options are made and the folder is not read."""
Claim = tuple[str, float]


def tasks_of(
    parts: Sequence[Part], options: ExperimentOptions
) -> tuple[list[Task], list[list[ExperimentOptions]]]:
    """Return (the steps as tasks, the options of each step for each of its placements).

    Steps of a cell share its folder and run in order; a training on several cells follows all of
    them."""
    last: dict[str, str] = {}
    tasks: list[Task] = []
    ways: list[list[ExperimentOptions]] = []
    for number, one in enumerate(parts):
        logs = one.step.pooled if one.step.kind == "train" else ()
        held = [cell.name for cell in logs or (one.step.cell,)]
        name = f"{number} {one.step.address}"
        after = tuple(last[cell] for cell in held if cell in last)
        own = _pinned(one, options)
        tasks.append(Task(name, after, [_sums(_claims(one, way)) for way in own]))
        ways.append(own)
        last |= dict.fromkeys(held, name)
    return tasks, ways


def _pinned(one: Part, options: ExperimentOptions) -> list[ExperimentOptions]:
    """Return the step's options once for each device it could run on, pinned to that device."""
    devices, there = devices_of(options.calls.devices), range(len(inventory()))
    pools: dict[Role, tuple[int, ...]] = {}
    for role in _single(one, options):
        pool = devices.of(role)
        if pool is None or len(pool) > 1:
            pools[role] = tuple(there) if pool is None else pool
    found: dict[tuple[str, ...], ExperimentOptions] = {}
    for number in there:
        if any(number in pool for pool in pools.values()):
            more = tuple(
                f"{role}=[{number if number in pool else pool[0]}]" for role, pool in pools.items()
            )
            calls = replace(options.calls, devices=(*options.calls.devices, *more))
            found.setdefault(more, replace(options, calls=calls))
    return list(found.values()) or [options]


def _single(one: Part, options: ExperimentOptions) -> Iterator[Role]:
    """Yield the roles that use a single device in this step: models of the local engine, a training
    in one process."""
    kind, vllm = one.step.kind, devices_of(options.calls.devices).vllm
    if kind == "build" and _policy(one, options).startswith("local:"):
        yield "policy"
    if kind == "eval" and "policy" not in vllm:
        yield "policy"
    refs = [ref for ref in _judges(one, options) if not ref.startswith("vllm:")]
    if kind in ("judge", "eval") and any(ref.startswith("local:") for ref in refs):
        yield "judge"
    if kind == "train" and _processes(one, options) == 1:
        yield "trainer"


def _processes(one: Part, options: ExperimentOptions) -> int:
    try:
        asked = train_options(one.step, one.spec, FOLDER, options)
        recipe, sets = trainable(asked), sort_sets(asked.specs.sets)[1]
        given = launching.accelerators(options.calls)
        return choose_launch(asked, recipe, sets, given)[0].processes
    except ConvbenchError:
        return 1


def _judges(one: Part, options: ExperimentOptions) -> Iterator[str]:
    """Yield the models of a step's judges."""
    for name in one.spec.judges:
        try:
            yield resolve_judge(name, options.specs.folders).model or ""
        except ConvbenchError:
            continue  # reported when the step judges


def apart(options: ExperimentOptions) -> ExperimentOptions:
    """Return the options for concurrent steps: without progress displays, which would overwrite
    each other, and on machines without accelerators with trainings in a process of their own, which
    can be stopped."""
    said = options.calls.devices
    if not inventory() and devices_of(said).trainer is None:
        said = (*said, "trainer=[]")
    return replace(options, calls=replace(options.calls, devices=said, quiet=True))


def _sums(claims: Iterable[Claim]) -> dict[str, float]:
    """Return the sum of the claims on each resource, at most 1."""
    found: dict[str, float] = {}
    for name, share in claims:
        found[name] = min(1.0, found.get(name, 0.0) + share)
    return found


def _claims(one: Part, options: ExperimentOptions) -> Iterator[Claim]:
    """Yield the claims of a step."""
    if options.calls.ledger is not None and options.calls.ledger.limited:
        yield MONEY, 1.0  # calls under one budget go through one loop
    step = one.step
    if step.kind == "build":
        yield from _asked(_policy(one, options), "policy", options)
    if step.kind == "eval":
        yield from _sampler("policy", options)  # a checkpoint
    if step.kind in ("build", "eval") and one.spec.teacher is not None:
        yield from _asked(_ref(one.spec.teacher, options), "teacher", options)
    if step.kind in ("judge", "eval"):
        yield from _judged(one, options)
    if step.kind == "train":
        yield from _trained(one, options)


def _trained(one: Part, options: ExperimentOptions) -> Iterator[Claim]:
    """Yield the claims of a training: all of its devices; for a learner that samples or judges
    first, also those of the policy and the judges."""
    names = launching.given(options.calls)
    names = tuple(d.name for d in inventory()) if names is None else names
    yield from ((f"device {name}", 1.0) for name in names) if names else [(CPU, 1.0)]
    if _prepares(one, options):
        yield from _sampler("policy", options)
        yield from _judged(one, options)


def _prepares(one: Part, options: ExperimentOptions) -> bool:
    try:
        if rounds_options(one.step, one.spec, FOLDER, elsewhere(options)) is not None:
            return True
        asked = train_options(one.step, one.spec, FOLDER, options)
        module = launching.load(launching.locate(trainable(asked).trainer or ""))
    except ConvbenchError:
        return True  # the error is reported when the step runs
    return hasattr(module, "prepare")


def _judged(one: Part, options: ExperimentOptions) -> Iterator[Claim]:
    for name in one.spec.judges:
        try:
            judge = resolve_judge(name, options.specs.folders)
        except ConvbenchError:
            continue
        if judge.model is not None:
            yield from _asked(judge.model, "judge", options)
        elif "weights" in kind_of(judge.spec).needs:
            yield from _sampler("judge", options)
        else:
            yield CPU, 1.0


def _policy(one: Part, options: ExperimentOptions) -> str:
    calls, folders = options.calls, options.specs.folders
    try:
        name = policy_or_default(
            one.spec.model, api_base=calls.api_base, vllm_python=calls.vllm_python, specs=folders
        )
        return resolve(name, api_base=calls.api_base, specs=folders).ref
    except ConvbenchError:
        return ""


def _ref(name: str, options: ExperimentOptions) -> str:
    try:
        return resolve(name, specs=options.specs.folders).ref
    except ConvbenchError:
        return ""


def _asked(ref: str, role: Role, options: ExperimentOptions) -> Iterator[Claim]:
    """Yield the claims of calls to a model: its devices if it runs here, else a share of calls."""
    if ref.partition(":")[0] in ("local", "vllm"):
        yield from _sampler(role, options)
    else:
        yield CALLS, ASKING


def _sampler(role: Role, options: ExperimentOptions) -> Iterator[Claim]:
    place = placement(options.calls, role)
    names = None if place is None else place.names
    names = tuple(d.name for d in inventory()) if names is None else names
    share = (place.share if place is not None else None) or 1.0
    yield from ((f"device {name}", share) for name in names) if names else [(CPU, 1.0)]
