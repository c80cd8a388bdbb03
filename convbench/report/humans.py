"""Runs that differ in who plays their simulated human alone stand in sections apart."""

from __future__ import annotations

from collections.abc import Sequence

from convbench.judge.review.scene import humans
from convbench.report.policies import Policy
from convbench.schema import RunManifest
from convbench.schema.run import Member
from convbench.views import hears

Families = Sequence[list[Policy]]


def by_simulator(families: Families) -> list[tuple[str, list[list[Policy]]]]:
    """Return the families by their simulated human, each with its name: one without a name where
    all have the same, or where their own policies differ too (`policy` may play its own human)."""
    parts: dict[tuple[tuple[str, str, str], ...], list[list[Policy]]] = {}
    for family in families:
        parts.setdefault(simulator(family[0].run.manifest), []).append(family)
    own = {same(family[0].run.manifest) for family in families}
    if len(parts) < 2 or len(own) > 1:
        return [("", list(families))]
    names = [" and ".join(dict.fromkeys(model for _, model, _ in mark)) for mark in parts]
    named = [
        name if names.count(name) == 1 else f"{name or 'nobody'} ({place + 1})"
        for place, name in enumerate(names)
    ]
    return list(zip(named, parts.values(), strict=True))


def simulator(manifest: RunManifest) -> tuple[tuple[str, str, str], ...]:
    """Return who plays the speakers that the policy hears and that speak of their own: (name,
    model, how it is sampled and what its weights are)."""
    protocol = manifest.protocol
    return tuple(
        (name, member.model, f"{member.sampling.model_dump_json()} {member.fingerprint}")
        for name in humans(protocol)
        if hears(protocol, protocol.policy, name) and (member := manifest.cast.get(name))
    )


def same(manifest: RunManifest) -> str:
    """Return what tells a run's policy from another: its weights' hash, or its name."""
    member: Member | None = manifest.cast.get(manifest.protocol.policy)
    return "" if member is None else member.fingerprint or member.model
