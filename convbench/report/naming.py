"""Sort, name and pool the policies of a section."""

from __future__ import annotations

from dataclasses import replace

from convbench.report.policies import NAMES, Policy
from convbench.report.rows import Observations


def sort_policies(policies: list[Policy]) -> list[Policy]:
    """Return policies in the order of the paper's tables, then others by name."""
    rank = {name: index for index, name in enumerate(NAMES.values())}
    return sorted(policies, key=lambda p: (rank.get(p.name, len(rank)), p.name))


def plain_name(policy: Policy) -> str:
    """Return a policy's name without the suffix in brackets that distinguishes it."""
    return policy.name.partition(" (")[0]


def with_unique_names(policies: list[Policy]) -> list[Policy]:
    """Return the policies with unique names. Equal names get a suffix: the model (Base), the size
    of the training set or the folder, then the run id."""
    for more in (_distinction, lambda policy: policy.run.manifest.id):
        names = [policy.name for policy in policies]
        policies = [
            replace(policy, name=f"{policy.name} ({more(policy)})")
            if names.count(policy.name) > 1
            else policy
            for policy in policies
        ]
    return policies


def _distinction(policy: Policy) -> str:
    manifest = policy.run.manifest
    data = policy.recipe.get("data") or {}
    if not policy.is_base and data.get("rows") is not None:
        return f"{data['rows']} rows"
    if policy.is_base and manifest.protocol.policy in manifest.cast:
        return manifest.cast[manifest.protocol.policy].model
    return policy.run.path.name


def pool_policies(policies: list[Policy]) -> list[Policy]:
    """Return the policies with those of one name and folder (all of Base) joined into one. Units
    get the family as a prefix, so that conversations of different families never pair."""
    joined: dict[tuple[str, str], list[Policy]] = {}
    for policy in policies:
        folder = "" if policy.is_base else policy.run.path.name
        joined.setdefault((policy.name, folder), []).append(policy)
    return [
        replace(
            members[0],
            observations=Observations(
                row._replace(unit=f"{policy.family}/{row.unit}")
                for policy in members
                for row in policy.observations
            ),
            planned=sum(policy.planned for policy in members),
            members=tuple(members),
        )
        for members in joined.values()
    ]
