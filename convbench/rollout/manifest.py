"""Make a run's manifest from what the user asked for, or check it against the one on disk."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from convbench import __version__
from convbench.errors import RunError, SpecError, UsageError
from convbench.models.where import without_latest
from convbench.options.shared import Shape
from convbench.schema import (
    Member,
    Mode,
    ProtocolSpec,
    RunManifest,
    Sampling,
    TaskSpec,
    fingerprint,
)
from convbench.schema.differ import differences
from convbench.schema.reasoning import Effort
from convbench.schema.regime import in_regime
from convbench.words import SplitChoice

DEFAULT_TEMPERATURES = (0.3, 0.7, 1.0)
"""Mukherjee et al. solve each task three times at different temperatures (section 4) and do not
say which; these are ours."""

PACKAGES = ("litellm", "transformers", "torch", "vllm", "datasets", "huggingface_hub")


def new_run_id(now: datetime | None = None) -> str:
    """Return a unique id that sorts by time."""
    now = now or datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def make_manifest(
    task: TaskSpec,
    protocol: ProtocolSpec,
    shape: Shape,
    cast: Mapping[str, Member],
    **more: Any,
) -> RunManifest:
    """Return the manifest of a new run; a mode or length the protocol lacks is refused."""
    samples, temperatures = spread(shape.samples, shape.temperatures)
    now = datetime.now(UTC)
    regime = shape.regime or "clean"
    protocol = in_regime(protocol, regime)
    mode, turns = mode_of(protocol, shape.mode), turns_of(protocol, shape.turns)
    marks = {
        "task": fingerprint(task),
        "protocol": fingerprint(protocol),
        "cast": fingerprint({name: identity(member) for name, member in cast.items()}),
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
        regime=regime,
        split=shape.split or "all",
        cast=dict(cast),
        fingerprints=marks,
        packages=versions(),
        **more,
    )


def ask_again(
    old: RunManifest,
    cast: Mapping[str, Member],
    *,
    split: SplitChoice = "train",
    protocol: ProtocolSpec | None = None,
    **more: Any,
) -> RunManifest:
    """Return the manifest of a run in which a cast meets another run's questions of a split, in
    its protocol or in another one of that one's own length.

    What follows a pulled run holds its specs, and so stays marked as pulled: they are data.
    """
    same = protocol is None or protocol.name == old.protocol.name
    shape = Shape(
        mode=old.mode,
        turns=old.turns if same else None,
        samples=old.samples,
        temperatures=old.temperatures,
        seed=old.seed,
        split=split,
        regime=old.regime,
    )
    return make_manifest(
        old.task, protocol or old.protocol, shape, cast,
        parent=old.id, source_revision=old.source_revision, pulled_from=old.pulled_from, **more,
    )  # fmt: skip


def identity(member: Member) -> dict[str, Any]:
    """Return what makes a member of the cast the same one: not the address it is served at, nor
    the name it was asked for by."""
    left = dict.fromkeys(("api_base", "weights", "short", "own_sampling", "left_out"), True)
    return member.model_dump(mode="json", exclude={**left, "sampling": {"logprobs"}})


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter to a result, those installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def mode_of(protocol: ProtocolSpec, mode: Mode | None) -> Mode:
    """Return the mode asked for, or the protocol's first."""
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
    """Return the number of policy turns asked for, or the protocol's default."""
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


def spread(
    samples: int | None, temperatures: tuple[float, ...] | None
) -> tuple[int, tuple[float, ...]]:
    """Return samples and temperatures: one value for all, or one for each sample.

    With another number of samples and no temperatures given, they lie evenly between 0.3 and 1.
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
    """Raise SpecError where samples are to differ by temperatures that the policy's model is known
    to take none of: all of them would be drawn alike."""
    policy = manifest.protocol.policy
    member, fixed = manifest.cast[policy], manifest.protocol.speakers[policy].temperature
    asked = dict.fromkeys(manifest.temperatures)
    if "temperature" in member.left_out and fixed is None and len(asked) > 1:
        listed = ", ".join(f"{value:g}" for value in asked)
        raise SpecError(
            f"--temperatures: found {listed} for {member.short or member.model}, which takes no "
            "temperature, so that all samples would be drawn alike; expected one value, e.g. "
            "--temperatures 1, or a model that takes one"
        )


def sampling_of(
    max_tokens: int | None, effort: Effort | None = None, top_p: float | None = None
) -> Sampling:
    """Return the sampling of a speaker; the temperature is set by conversation."""
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return Sampling(reasoning_effort=effort, top_p=top_p, **limit)


def refuse_changes(old: RunManifest, new: RunManifest) -> None:
    """Raise RunError naming the differences where a resume would change the run's specs."""
    keys = (
        "task", "protocol", "mode", "turns", "samples", "temperatures", "seed", "regime", "split",
    )  # fmt: skip
    found = [
        line
        for key in keys
        for line in differences(key, _plain(getattr(old, key)), _plain(getattr(new, key)))
    ]
    for name in sorted(set(old.cast) | set(new.cast)):
        before, after = old.cast.get(name), new.cast.get(name)
        found += differences(
            f"cast.{name}",
            identity(_without_latest(before)) if before else None,
            identity(after) if after else None,
        )
    if found:
        shown = "; ".join(found[:6]) + (f"; and {len(found) - 6} more" if len(found) > 6 else "")
        raise RunError(
            f"this run was made with other specs: {shown}. Resume it with `convbench build "
            "--run DIR` alone, or make a new run"
        )


def _without_latest(member: Member) -> Member:
    """Return the member by the name that its weights have today: older records hold the link."""
    return member.model_copy(update={"model": without_latest(member.model)})


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
