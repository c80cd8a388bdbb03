"""Resume: whether what a user says of a run that is there is what the run already holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convbench.catalog import names
from convbench.errors import RunError
from convbench.options.specs import Sets, load_protocol, load_task, sized, sort_sets, with_sets
from convbench.rollout.calls import SCRIPT
from convbench.rollout.cast import make_member, teachers, with_fingerprint
from convbench.rollout.manifest import refuse_changes
from convbench.rollout.toolbox import as_began
from convbench.schema import Member, ProtocolSpec, RunManifest, TaskSpec
from convbench.schema.regime import in_regime
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
    if options.logprobs and not old.cast[old.protocol.policy].sampling.logprobs:
        raise RunError(
            f"{run.path}: --logprobs: this run was begun without, so that its first replies have "
            "none; make a new run"
        )
    sets = sort_sets(options.specs.sets, ("task", "protocol"))
    shape = {
        name: value
        for name, value in vars(options.shape).items()
        if value is not None and name not in ("max_tokens", "reasoning_effort", "top_p")
    }
    task = _task_again(old.task, options, sets)
    protocol = in_regime(_protocol_again(old.protocol, options, sets), old.regime)
    protocol = as_began(protocol, old.protocol)
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
    """Return the cast as the user names it now, with local weights as they lie there now. Who is
    not named again keeps the model that speaks for it."""
    taught = teachers(old.protocol, options.teacher)
    named = {name: options.teacher if name in taught else None for name in old.cast}
    named[old.protocol.policy] = options.model
    return {
        name: _again(member, named[name], options, policy=name == old.protocol.policy)
        for name, member in old.cast.items()
    }


def _again(old: Member, named: str | None, options: BuildOptions, *, policy: bool) -> Member:
    """Return a speaker's member where the user now names this model, or none, and how the policy is
    to be asked, or not."""
    shape = options.shape
    own = {"reasoning_effort": shape.reasoning_effort, "top_p": shape.top_p} if policy else {}
    said = {"max_tokens": shape.max_tokens, **own}
    said = {name: value for name, value in said.items() if value is not None}
    if old.model != SCRIPT and said:
        old = old.model_copy(update={"sampling": old.sampling.model_copy(update=said)})
    if named is None:
        return with_fingerprint(old)
    # The server of --api-base is the policy's; another model is found by its own name.
    base = options.calls.api_base if named in (options.model, old.model) else None
    told = old.sampling
    return make_member(
        named, told.max_tokens, base, options.specs, told.reasoning_effort, told.top_p
    )
