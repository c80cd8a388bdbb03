"""Create a run's cast and manifest from the user's options, or compare the options with an existing
run.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convbench import __version__
from convbench.catalog import spec_files
from convbench.errors import RunError, SpecError, UsageError
from convbench.models.aliases import default_policy, resolve
from convbench.models.open import never_sent
from convbench.models.weights_path import (
    own_sampling,
    weights_fingerprint,
    weights_of,
    without_latest,
)
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.options.specs import (
    SpecSets,
    load_protocol,
    load_task,
    sort_sets,
    with_count,
    with_sets,
)
from convbench.rollout.calls import SCRIPT
from convbench.rollout.tool_turn import with_recorded_tools
from convbench.schema import (
    Mode,
    ModelConfig,
    ProtocolSpec,
    RunManifest,
    Sampling,
    TaskSpec,
    fingerprint,
)
from convbench.schema.base import field_differences
from convbench.schema.reasoning import Effort
from convbench.store import Run
from convbench.util.redact import strip_address
from convbench.util.words import SplitChoice

if TYPE_CHECKING:
    from convbench.options.build import BuildOptions


def make_cast(
    task: TaskSpec,
    protocol: ProtocolSpec,
    *,
    model: str | None,
    teacher: str | None,
    max_tokens: int | None,
    specs: SpecOptions,
    calls: CallOptions,
    effort: Effort | None = None,
    top_p: float | None = None,
) -> dict[str, ModelConfig]:
    """Return the model configuration of every speaker of the protocol, by name; that of a speaker
    whose steps are all scripted names the model `script`.

    `teacher` is the model of the other speakers that may be taught (`taught_speakers`), `effort`
    the policy's reasoning effort, `top_p` its nucleus. Raise SpecError if a speaker needs a model
    and none is named, FatalModelError for an unknown model.
    """
    policy_model = model or default_policy(specs.folders)
    cast = {
        protocol.policy: make_model_config(
            policy_model, max_tokens, calls.api_base, specs, effort, top_p
        )
    }
    can_be_taught = taught_speakers(protocol, teacher)
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    for name in protocol.speakers:
        if name == protocol.policy:
            continue
        if name not in spoken:
            cast[name] = ModelConfig(model=SCRIPT)
            continue
        own = task.speakers.get(name) or protocol.speakers[name].default
        other = (teacher if name in can_be_taught else None) or own
        if other is None:
            raise SpecError(
                f"protocol {protocol.name}: speaker {name!r} needs a model; name it with --teacher"
            )
        # The server of --api-base is the policy's; another model is found by its own name.
        base = calls.api_base if other == policy_model else None
        cast[name] = (
            cast[protocol.policy]
            if other == "policy"
            else make_model_config(other, max_tokens, base, specs)
        )
    return cast


def taught_speakers(protocol: ProtocolSpec, teacher: str | None = None) -> list[str]:
    """Return the speakers that `--teacher` sets the model of: all with a model of their own, except
    those whose default is a rule, which is part of the setting (a renderer, for example). Raises
    SpecError if `teacher` is given and there is none."""
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    speakers = [
        name
        for name, speaker in protocol.speakers.items()
        if name in spoken
        and name != protocol.policy
        and not (speaker.default or "").startswith("rule:")
    ]
    if teacher and not speakers:
        raise SpecError(
            f"--teacher {teacher}: in protocol {protocol.name} only the policy's model speaks; "
            "omit --teacher"
        )
    return speakers


def make_model_config(
    name: str,
    max_tokens: int | None,
    api_base: str | None,
    specs: SpecOptions,
    effort: Effort | None = None,
    top_p: float | None = None,
) -> ModelConfig:
    """Return the model configuration that a model's name stands for, with the fingerprint of its
    local weights.

    The address is recorded without user and query. Raise FatalModelError for an unknown or retired
    name.
    """
    resolved = resolve(name, api_base=api_base, specs=specs.folders)
    return with_fingerprint(
        ModelConfig(
            model=resolved.ref,
            short=resolved.short,
            sampling=sampling_of(max_tokens, effort, top_p),
            api_base=strip_address(api_base) if api_base else None,
            weights=resolved.alias.weights,
            reads=resolved.alias.reads,
            replay=resolved.alias.replay,
            extra_body=resolved.alias.extra_body,
            own_sampling=own_sampling(weights_of(resolved.ref, resolved.alias.weights)),
            left_out=tuple(sorted(never_sent(resolved))) if "/" in resolved.ref else (),
        )
    )


def copy_reasoning(member: ModelConfig, old: ModelConfig) -> ModelConfig:
    """Return a copy of a policy's configuration with the reasoning effort and the `top_p` of the
    one that it follows.

    A model of scheme `local` or `vllm` without fields of its own (`extra_body`) also gets the
    other's chat template options, as training renders them, and, if it reads reasoning from a
    field, the other's `reads`.
    """
    alike = {name: getattr(old.sampling, name) for name in ("reasoning_effort", "top_p")}
    sampling = member.sampling.model_copy(update=alike)
    member = member.model_copy(update={"sampling": sampling})
    if not member.model.startswith(("local:", "vllm:")) or member.extra_body:
        return member
    kwargs = old.extra_body.get("chat_template_kwargs")
    body = {"chat_template_kwargs": kwargs} if kwargs else {}
    reads = old.reads if member.reads == "field" else member.reads
    return member.model_copy(update={"extra_body": body, "reads": reads})


def with_fingerprint(member: ModelConfig) -> ModelConfig:
    """Return a copy of the configuration with the fingerprint of its weights as they are now; None
    unless the model is `local:PATH` and the folder exists."""
    scheme, _, rest = member.model.partition(":")
    mark = weights_fingerprint(Path(rest)) if scheme == "local" else None
    return member.model_copy(update={"fingerprint": mark})


DEFAULT_TEMPERATURES = (0.3, 0.7, 1.0)
"""Mukherjee et al. solve each task three times at different temperatures (section 4) and do not say
which; these are ours."""

PACKAGES = ("litellm", "transformers", "torch", "vllm", "datasets", "huggingface_hub")


def new_run_id(now: datetime | None = None) -> str:
    """Return a unique run id that sorts by time: UTC date and time and 8 random hex digits, as in
    `20261127-072000-1a2b3c4d`. `now` is the current time if it is None."""
    now = now or datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def make_manifest(
    task: TaskSpec,
    protocol: ProtocolSpec,
    shape: RunSettings,
    cast: Mapping[str, ModelConfig],
    **more: Any,
) -> RunManifest:
    """Return the manifest of a new run with a new id; nothing is written.

    `more` are further fields of it.

    Settings that are None get their defaults: seed 0, split `all`, three samples,
    and the protocol's own mode and turns. Raise SpecError for a mode or a number of turns that the
    protocol does not support, UsageError for temperatures that do not match the samples.
    """
    samples, temperatures = spread_temperatures(shape.samples, shape.temperatures)
    now = datetime.now(UTC)
    mode, turns = mode_of(protocol, shape.mode), turns_of(protocol, shape.turns)
    marks = {
        "task": fingerprint(task),
        "protocol": fingerprint(protocol),
        "cast": fingerprint({name: model_identity(member) for name, member in cast.items()}),
    }
    seed = 0 if shape.seed is None else shape.seed
    marks["specs"] = fingerprint(marks, mode, turns, samples, list(temperatures), seed)
    return RunManifest(
        id=new_run_id(now),
        created=now.isoformat(timespec="seconds"),
        version=__version__,
        task=task,
        protocol=protocol,
        mode=mode,
        turns=turns,
        samples=samples,
        temperatures=temperatures,
        seed=seed,
        split=shape.split or "all",
        cast=dict(cast),
        fingerprints=marks,
        packages=package_versions(),
        **more,
    )


def follow_up_manifest(
    old: RunManifest,
    cast: Mapping[str, ModelConfig],
    *,
    split: SplitChoice = "train",
    protocol: ProtocolSpec | None = None,
    **more: Any,
) -> RunManifest:
    """Return the manifest of a run in which a cast answers another run's questions of a split.

    It has the other run's task, mode, samples, temperatures and seed and names it as
    `parent`. The protocol is the other run's with as many turns, or another one (`protocol`) with
    its default number. It is marked as pulled if the other one is: it holds the same specs, which
    are data. Raise SpecError if the protocol does not support the mode.
    """
    same = protocol is None or protocol.name == old.protocol.name
    shape = RunSettings(
        mode=old.mode,
        turns=old.turns if same else None,
        samples=old.samples,
        temperatures=old.temperatures,
        seed=old.seed,
        split=split,
    )
    return make_manifest(
        old.task,
        protocol or old.protocol,
        shape,
        cast,
        parent=old.id,
        source_revision=old.source_revision,
        pulled_from=old.pulled_from,
        **more,
    )


def model_identity(member: ModelConfig) -> dict[str, Any]:
    """Return the fields that identify a model configuration, as JSON values.

    Left out are address, path of the weights, short name, own sampling limits and refused
    parameters.
    """
    left = dict.fromkeys(("api_base", "weights", "short", "own_sampling", "left_out"), True)
    return member.model_dump(mode="json", exclude=left)


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that affect results, by name; those that are not
    installed are left out."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def mode_of(protocol: ProtocolSpec, mode: Mode | None) -> Mode:
    """Return the requested mode, or the protocol's first. Raises SpecError for an unsupported
    one."""
    if mode is None:
        return protocol.modes[0]
    if mode not in protocol.modes:
        reason = f": {protocol.mode_reason}" if protocol.mode_reason else ""
        raise SpecError(
            f"--mode {mode}: protocol {protocol.name} supports {', '.join(protocol.modes)} "
            f"only{reason}"
        )
    return mode


def turns_of(protocol: ProtocolSpec, turns: int | None) -> int:
    """Return the requested number of policy turns, or the protocol's default. Raises SpecError for
    an unsupported one."""
    limits = protocol.turns
    if turns is None:
        return limits.default
    if limits.min <= turns <= limits.max:
        return turns
    allowed = (
        f"exactly {limits.min}" if limits.min == limits.max else f"{limits.min} to {limits.max}"
    )
    reason = f" ({limits.why})" if limits.why else ""
    many = "turn" if limits.max == 1 else "turns"
    raise SpecError(f"--turns {turns}: protocol {protocol.name} has {allowed} {many}{reason}")


def spread_temperatures(
    samples: int | None, temperatures: tuple[float, ...] | None
) -> tuple[int, tuple[float, ...]]:
    """Return the number of samples and their temperatures: one value for all, or one for each
    sample.

    Without temperatures, 3 samples (also the default) get 0.3, 0.7 and 1, one sample 0.7, any other
    number values spaced evenly from 0.3 to 1. Without a number of samples there is one for each
    temperature, or 3 for a single one. Raise UsageError for numbers that do not match, and for a
    temperature below 0 or not finite.
    """
    if temperatures is None:
        n = 3 if samples is None else samples
        if n == len(DEFAULT_TEMPERATURES):
            return n, DEFAULT_TEMPERATURES
        return n, (0.7,) if n == 1 else tuple(round(0.3 + 0.7 * i / (n - 1), 3) for i in range(n))
    several = len(temperatures) if len(temperatures) > 1 else len(DEFAULT_TEMPERATURES)
    n = several if samples is None else samples
    if len(temperatures) not in (1, n):
        raise UsageError(
            f"--temperatures: found {len(temperatures)} values for {n} samples; expected one "
            "value, or one for each sample"
        )
    if any(not 0 <= value < math.inf for value in temperatures):
        raise UsageError(f"--temperatures: found {temperatures}; expected numbers of at least 0")
    return n, temperatures


def refuse_unsent_temperatures(manifest: RunManifest) -> None:
    """Raise SpecError if samples are to differ by temperature and the policy's model is known to
    take none, so that all samples would be drawn alike."""
    policy = manifest.protocol.policy
    member, fixed = manifest.cast[policy], manifest.protocol.speakers[policy].temperature
    distinct = dict.fromkeys(manifest.temperatures)
    if "temperature" in member.left_out and fixed is None and len(distinct) > 1:
        listed = ", ".join(f"{value:g}" for value in distinct)
        raise SpecError(
            f"--temperatures: found {listed} for {member.short or member.model}, which does "
            "not support temperature, so all samples would be drawn the same way; expected one "
            "value, e.g. --temperatures 1, or a model that supports it"
        )


def sampling_of(
    max_tokens: int | None, effort: Effort | None = None, top_p: float | None = None
) -> Sampling:
    """Return a speaker's sampling settings; `max_tokens` None leaves the default (512).

    The temperature in them is the default 1.0, which each conversation replaces by its own.
    """
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return Sampling(reasoning_effort=effort, top_p=top_p, **limit)


def refuse_changes(old: RunManifest, new: RunManifest) -> None:
    """Raise RunError if a resume would change the run's specs; the message lists up to six
    differences.

    Compared are task, protocol, mode, turns, samples, temperatures, seed, split and the
    cast (`model_identity`).
    """
    keys = (
        "task",
        "protocol",
        "mode",
        "turns",
        "samples",
        "temperatures",
        "seed",
        "split",
    )
    changes = [
        line
        for key in keys
        for line in field_differences(key, _as_json(getattr(old, key)), _as_json(getattr(new, key)))
    ]
    for name in sorted(set(old.cast) | set(new.cast)):
        before, after = old.cast.get(name), new.cast.get(name)
        changes += field_differences(
            f"cast.{name}",
            model_identity(_without_latest(before)) if before else None,
            model_identity(after) if after else None,
        )
    if changes:
        shown = "; ".join(changes[:6]) + (
            f"; and {len(changes) - 6} more" if len(changes) > 6 else ""
        )
        raise RunError(
            f"the options do not match this run: {shown}. To resume it, use "
            "`convbench build --run DIR` without other options, or start a new run"
        )


def _without_latest(member: ModelConfig) -> ModelConfig:
    """Return the configuration with the path that its weights have today; older records hold the
    link."""
    return member.model_copy(update={"model": without_latest(member.model)})


def _as_json(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def resume_manifest(run: Run, options: BuildOptions) -> RunManifest:
    """Return the run's manifest as it was written.

    Raise RunError if the user's options differ from it, since a run never changes its specs or
    cast, and for a run of imported conversations.
    """
    old = run.manifest
    if old.kind == "import":
        raise RunError(f"{run.path}: holds imported conversations; there is nothing to build")
    sets = sort_sets(options.specs.sets, ("task", "protocol"))
    shape = {
        name: value
        for name, value in vars(options.shape).items()
        if value is not None and name not in ("max_tokens", "reasoning_effort", "top_p")
    }
    task = _task_again(old.task, options, sets)
    protocol = _protocol_again(old.protocol, options, sets)
    protocol = with_recorded_tools(protocol, old.protocol)
    new = old.model_copy(update={**shape, "task": task, "protocol": protocol})
    refuse_changes(old, new)  # before the cast, whose speakers another protocol may lack
    refuse_changes(old, new.model_copy(update={"cast": _cast_again(old, options)}))
    return old


def _task_again(old: TaskSpec, options: BuildOptions, sets: SpecSets) -> TaskSpec:
    """Return the task as the user names it now; options that are not repeated keep their old
    values."""
    if options.task is None:
        return with_count(with_sets(old, "task", sets), options.tasks)
    task = load_task(options.task, options.specs, sets)
    resizes = options.tasks is not None or "sample.count" in sets.for_kind("task")
    return with_count(task, options.tasks if resizes else old.sample.count)


def _protocol_again(old: ProtocolSpec, options: BuildOptions, sets: SpecSets) -> ProtocolSpec:
    named = options.protocol
    if (
        named is None
        and options.task
        and old.name in spec_files("protocols", options.specs.folders)
    ):
        named = old.name
    return load_protocol(named, options.specs, sets) if named else with_sets(old, "protocol", sets)


def _cast_again(old: RunManifest, options: BuildOptions) -> dict[str, ModelConfig]:
    """Return the cast as the user names it now, with the fingerprints of today's local weights.
    Speakers that are not named again keep their models."""
    taught = taught_speakers(old.protocol, options.teacher)
    named = {name: options.teacher if name in taught else None for name in old.cast}
    named[old.protocol.policy] = options.model
    return {
        name: _member_again(member, named[name], options, policy=name == old.protocol.policy)
        for name, member in old.cast.items()
    }


def _member_again(
    old: ModelConfig, named: str | None, options: BuildOptions, *, policy: bool
) -> ModelConfig:
    """Return a speaker's configuration with the model `named` in its place, if it is not None, and
    with the user's new sampling options."""
    shape = options.shape
    own = {"reasoning_effort": shape.reasoning_effort, "top_p": shape.top_p} if policy else {}
    overrides = {"max_tokens": shape.max_tokens, **own}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    if old.model != SCRIPT and overrides:
        old = old.model_copy(update={"sampling": old.sampling.model_copy(update=overrides)})
    if named is None:
        return with_fingerprint(old)
    # The server of --api-base is the policy's; another model is found by its own name.
    base = options.calls.api_base if named in (options.model, old.model) else None
    sampling = old.sampling
    return make_model_config(
        named, sampling.max_tokens, base, options.specs, sampling.reasoning_effort, sampling.top_p
    )
