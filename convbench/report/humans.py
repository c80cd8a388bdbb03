"""Split runs that differ only in their simulated human into separate sections."""

from __future__ import annotations

from collections.abc import Sequence

from convbench.judge.review.scene import simulated_humans
from convbench.report.policies import Policy
from convbench.schema import RunManifest
from convbench.schema.run import ModelConfig
from convbench.views import can_hear

Families = Sequence[list[Policy]]


def by_simulator(families: Families) -> list[tuple[str, list[list[Policy]]]]:
    """Return (name of the simulated human, families) for each simulated human. There is one group,
    named "", if all families have the same one, or if their policies differ as well (a policy may
    play its own human)."""
    parts: dict[tuple[tuple[str, str, str], ...], list[list[Policy]]] = {}
    for family in families:
        parts.setdefault(simulator_identity(family[0].run.manifest), []).append(family)
    own = {policy_identity(family[0].run.manifest) for family in families}
    if len(parts) < 2 or len(own) > 1:
        return [("", list(families))]
    names = [" and ".join(dict.fromkeys(model for _, model, _ in mark)) for mark in parts]
    named = [
        name if names.count(name) == 1 else f"{name or 'nobody'} ({index + 1})"
        for index, name in enumerate(names)
    ]
    return list(zip(named, parts.values(), strict=True))


def simulator_identity(manifest: RunManifest) -> tuple[tuple[str, str, str], ...]:
    """Return (name, model, sampling and weights' fingerprint) of each simulated human that the
    policy hears."""
    protocol = manifest.protocol
    return tuple(
        (name, member.model, f"{member.sampling.model_dump_json()} {member.fingerprint}")
        for name in simulated_humans(protocol)
        if can_hear(protocol, protocol.policy, name) and (member := manifest.cast.get(name))
    )


def policy_identity(manifest: RunManifest) -> str:
    """Return what identifies a run's policy: its weights' fingerprint, else its model name."""
    member: ModelConfig | None = manifest.cast.get(manifest.protocol.policy)
    return "" if member is None else member.fingerprint or member.model
