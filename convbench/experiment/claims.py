"""What each step of an experiment takes while it runs: devices, the CPU, calls to others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from convbench.errors import ConvbenchError
from convbench.experiment.cells import Part
from convbench.experiment.scheduler import Task
from convbench.experiment.settings import elsewhere, rounds_options, train_options
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

CPU, CALLS, MONEY = "cpu", "calls", "budget"
ASKING = 0.25
"""Of all calls to others: so many steps ask at once, each up to its own `--concurrency`."""
FOLDER = Path()
"""Of a run that what is asked here does not look at."""
Claim = tuple[str, float]


def tasks_of(
    parts: Sequence[Part], options: ExperimentOptions
) -> tuple[list[Task], list[list[ExperimentOptions]]]:
    """Return the steps as tasks, in order within a cell, whose steps share its folder, a training
    on several cells after all of them; and with which options each is done in each of its places.
    """
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
    """Return the options of a step for each device that it could have: what takes one device and
    may have any of several, gets this one."""
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
    """Yield who takes one device in this step: a model of our own engine, a training in one
    process."""
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
            continue  # told when it judges


def apart(options: ExperimentOptions) -> ExperimentOptions:
    """Return the options of steps that run side by side: without displays of progress, which would
    write over each other; a training that has no device gets a process of its own, which can be
    stopped."""
    said = options.calls.devices
    if not inventory() and devices_of(said).trainer is None:
        said = (*said, "trainer=[]")
    return replace(options, calls=replace(options.calls, devices=said, quiet=True))


def _sums(claims: Iterable[Claim]) -> dict[str, float]:
    """Return claims on one thing as their sum, the whole at most."""
    found: dict[str, float] = {}
    for name, share in claims:
        found[name] = min(1.0, found.get(name, 0.0) + share)
    return found


def _claims(one: Part, options: ExperimentOptions) -> Iterator[Claim]:
    """Yield what a step takes."""
    if options.calls.ledger is not None and options.calls.ledger.limited:
        yield MONEY, 1.0  # calls that one limit holds go through one loop
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
    """Training takes whole devices; a learner that samples or judges first, theirs too."""
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
        return True  # whatever is wrong with it is told when it runs
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
    """Yield what asking a model takes: its devices where it runs here, else calls."""
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
