"""Resume: whether what a user says of a run that is there is what the run already holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convbench.catalog import names
from convbench.errors import RunError
from convbench.options.specs import Sets, load_protocol, load_task, sized, sort_sets, with_sets
from convbench.rollout.calls import SCRIPT
from convbench.rollout.cast import fingerprinted, make_cast
from convbench.rollout.manifest import refuse_changes
from convbench.schema import Member, ProtocolSpec, RunManifest, TaskSpec
from convbench.store import Run

if TYPE_CHECKING:
    from convbench.options.build import BuildOptions


def resume(run: Run, options: BuildOptions) -> RunManifest:
    """Return the run's manifest as it was written.

    Raises RunError where the user now says something else: a run never changes its specs or cast.
    """
    old = run.manifest
    if old.kind == "import":
        raise RunError(f"{run.path}: holds imported conversations; there is nothing to build")
    sets = sort_sets(options.specs.sets, ("task", "protocol"))
    shape = {
        name: value
        for name, value in vars(options.shape).items()
        if value is not None and name != "max_tokens"
    }
    task = _task_again(old.task, options, sets)
    protocol = _protocol_again(old.protocol, options, sets)
    new = old.model_copy(update={**shape, "task": task, "protocol": protocol})
    refuse_changes(old, new)  # before the cast, which another protocol may not even have
    refuse_changes(old, new.model_copy(update={"cast": _cast_again(old, options)}))
    return old


def _task_again(old: TaskSpec, options: BuildOptions, sets: Sets) -> TaskSpec:
    """Return the task as the user names it now; what is not said again stays as it was."""
    if options.task is None:
        return sized(with_sets(old, "task", sets), options.tasks)
    task = load_task(options.task, options.specs, sets)
    said = options.tasks is not None or "sample.count" in sets.of("task")
    return sized(task, options.tasks if said else old.sample.count)


def _protocol_again(old: ProtocolSpec, options: BuildOptions, sets: Sets) -> ProtocolSpec:
    named = options.protocol
    if named is None and options.task and old.name in names("protocols", options.specs.folders):
        named = old.name
    return load_protocol(named, options.specs, sets) if named else with_sets(old, "protocol", sets)


def _cast_again(old: RunManifest, options: BuildOptions) -> dict[str, Member]:
    """Return the cast as the user names it now, with local weights as they lie there now."""
    asked = (options.model, options.teacher, options.shape.max_tokens)
    if all(value is None for value in asked):
        return {name: fingerprinted(member) for name, member in old.cast.items()}
    policy = old.cast[old.protocol.policy]
    others = [m.model for n, m in old.cast.items() if n != old.protocol.policy]
    return make_cast(
        old.task,
        old.protocol,
        model=options.model or policy.model,
        teacher=options.teacher or next((model for model in others if model != SCRIPT), None),
        max_tokens=options.shape.max_tokens or policy.sampling.max_tokens,
        specs=options.specs,
        calls=options.calls,
    )
