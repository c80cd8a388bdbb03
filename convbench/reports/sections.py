"""Group policies into sections: one for each task, mode, protocol and number of turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from convbench.errors import RunError
from convbench.reports.compare import (
    SHOWN,
    has_own_protocol,
    mixed_judge,
    policy_differences,
    unquoted_judges,
)
from convbench.reports.policies import (
    Policy,
    pool_policies,
    read_policies,
    read_policy,
    sort_policies,
    with_unique_names,
)
from convbench.reports.starts import with_start_as_base
from convbench.schema import RunManifest
from convbench.store import Run
from convbench.views import can_hear


class NotComparable(RunError):
    """Raised for policies that are not comparable, unless the user allows it."""


@dataclass(frozen=True)
class Section:
    """Policies that may be compared in one table."""

    task: str
    mode: str
    protocol: str
    turns: int
    split: str
    policies: tuple[Policy, ...]
    notes: tuple[str, ...] = ()
    """Notes on these policies for the reader."""
    compared_with: str | None = None
    """Name of the policy that the others are compared with; None for Base."""
    simulator: str = ""
    """Name of the simulated human, if another section differs only in that; else ""."""

    @property
    def title(self) -> str:
        """Return one line: `task · mode · protocol, n = turns`, and the simulated human if sections
        differ in it."""
        named = f", simulator {self.simulator}" if self.simulator else ""
        return f"{self.task} · {self.mode} · {self.protocol}, n = {self.turns}{named}"

    @property
    def base(self) -> Policy | None:
        """Return the policy that the others were trained from (the first Base), or None."""
        return next((policy for policy in self.policies if policy.is_base), None)

    @property
    def baseline(self) -> Policy | None:
        """Return the policy that the others are compared with: the one named, else Base; None if
        the section lacks it."""
        if self.compared_with is None:
            return self.base
        return next((p for p in self.policies if p.name == self.compared_with), None)

    @property
    def judges(self) -> tuple[str, ...]:
        """Return the names of judges with a verdict on any of the policies, without duplicates, in
        order of appearance."""
        return tuple(dict.fromkeys(name for policy in self.policies for name in policy.judges))


def read_sections(
    runs: Sequence[Run], split: str = "test", *, pool: bool = False, allow: bool = False
) -> list[Section]:
    """Return the sections of these runs and their children, in the order of the runs.

    A section has one task, mode, protocol, number of turns and simulated human. `pool`
    joins policies of one name from runs that differ only in their seed. Raise NotComparable, which
    names the difference, for policies that are not comparable; with `allow` it becomes a note.
    Raise RunError for a run without conversations of the split.
    """
    return group_sections(_read_families(runs, split), split, pool=pool, allow=allow)


def group_sections(
    all_families: Iterable[list[Policy]], split: str, *, pool: bool = False, allow: bool = False
) -> list[Section]:
    """Return the sections of these families, in their order.

    A family is a list of a run's policy and its children's, not empty. Families are grouped by
    task, mode, protocol, turns and simulated human. `pool` and `allow` are as in
    `read_sections`, and so is NotComparable.
    """
    groups: dict[tuple[str, str, str, int], list[list[Policy]]] = {}
    for family in all_families:
        manifest = family[0].run.manifest
        key = (
            manifest.task.name,
            manifest.mode,
            manifest.protocol.name,
            manifest.turns,
        )
        groups.setdefault(key, []).append(family)
    return [
        _build_section(
            key, split, [policy for family in part for policy in family], pool, allow, name
        )
        for key, families in groups.items()
        for name, part in by_simulator(families)
    ]


def with_baseline(sections: Sequence[Section], name: str, option: str) -> list[Section]:
    """Return the sections with this policy as the baseline; a section that lacks it is unchanged.
    Raises RunError if no section has it."""
    name = policy_name(sections, name, option)
    return [
        replace(section, compared_with=name)
        if any(policy.name == name for policy in section.policies)
        else section
        for section in sections
    ]


def policy_name(sections: Sequence[Section], typed: str, option: str) -> str:
    """Return a policy's name in the tables for what the user typed: that name in any case, its
    recipe, or its evaluation's folder. Raises RunError if no policy or several match."""
    policies = [policy for section in sections for policy in section.policies]
    names = list(dict.fromkeys(policy.name for policy in policies))
    if typed in names:
        return typed
    meant = list(
        dict.fromkeys(
            candidate.name
            for candidate in policies
            if typed.casefold() in policy_aliases(candidate)
        )
    )
    if len(meant) == 1:
        return meant[0]
    what = f"several policies, {', '.join(meant)}" if meant else "no such policy"
    raise RunError(f"{option} {typed}: found {what}; expected one of {', '.join(names)}")


def compared_with(section: Section, names: Sequence[str]) -> Iterator[Section]:
    """Yield the section once for each of these policies that it has, with it as the baseline."""
    for name in names:
        if any(policy.name == name for policy in section.policies):
            yield replace(section, compared_with=name)


def policy_aliases(policy: Policy) -> set[str]:
    """Return what a policy may be called: its name, its recipe and its run's folder, in lower
    case."""
    named = (policy.name, str(policy.recipe.get("name", "")), policy.run.path.name)
    return {alias.casefold() for alias in named if alias}


def _build_section(
    key: tuple[str, str, str, int],
    split: str,
    group: list[Policy],
    pool: bool,
    allow: bool,
    simulator: str,
) -> Section:
    task, mode, protocol, turns = key
    policies, notes = _join_policies(group, pool, allow)
    return Section(task, mode, protocol, turns, split, policies, notes, simulator=simulator)


def _read_families(runs: Sequence[Run], split: str) -> Iterator[list[Policy]]:
    """Yield the family of each run. A child that is listed with its parent joins the parent's."""
    by_id = {run.manifest.id: run for run in runs}
    for run in by_id.values():
        if run.manifest.parent in by_id:
            continue
        family = read_policies(run, split)
        inside = {policy.run.manifest.id for policy in family}
        listed = (r for r in by_id.values() if r.manifest.parent == run.manifest.id)
        yield with_start_as_base(
            [
                *family,
                *(read_policy(c, split, run) for c in listed if c.manifest.id not in inside),
            ]
        )


def _join_policies(
    policies: list[Policy], pool: bool, allow: bool
) -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """Return a section's policies, checked, sorted and named, and the notes on them.

    Raises NotComparable unless `allow` is set.
    """
    first = next((policy for policy in policies if policy.is_base), policies[0])
    notes = []
    for policy in policies:
        problems = mixed_judge(policy)
        if policy is not first:
            problems += policy_differences(first, policy, questions=not pool)
        if pool and policy.is_base and policy.model != first.model:
            problems.append(f"base model: {first.model} → {policy.model}")
        if problems and not allow:
            raise NotComparable(_incomparable_message(first, policy, problems))
        if problems:
            notes.append(
                f"{policy.name} is not comparable with {first.name}: {'; '.join(problems)}."
            )
        if has_own_protocol(policy):
            notes.append(
                f"{policy.name} was evaluated in protocol {policy.run.manifest.protocol.name}, "
                "as its recipe asks."
            )
    listed = sort_policies(pool_policies(policies) if pool else policies)
    notes += _pooling_notes(policies) if pool else []
    notes += unquoted_judges(policies)
    return tuple(with_unique_names(listed)), tuple(dict.fromkeys(notes))


def _incomparable_message(first: Policy, policy: Policy, problems: list[str]) -> str:
    shown = "; ".join(problems[:SHOWN])
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return (
        f"{policy.name} ({policy.run.path}) and {first.name} ({first.run.path}) are not "
        f"comparable: {shown}{more}. Report them separately, or add --allow-incomparable to "
        "compare them in one table anyway"
    )


def _pooling_notes(policies: list[Policy]) -> list[str]:
    families = list(dict.fromkeys(policy.family for policy in policies))
    if len(families) == len(policies) == 1:
        return []
    return [
        f"Pooled over {len(families)} runs: a question drawn in several of them is one group; "
        "the errors ignore that conversations of one training share a checkpoint."
    ]


Families = Sequence[list[Policy]]


def by_simulator(families: Families) -> list[tuple[str, list[list[Policy]]]]:
    """Return (name of the simulated human, families) for each simulated human; the name is its
    models, numbered if several are equal.

    There is one group, named "", if all families have the same human, or if their policies differ
    as well (a policy may play its own human).
    """
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
    """Return (speaker, model, settings) for each simulated human that the policy hears; an empty
    tuple if there is none.

    The settings are one text: sampling as JSON, and the fingerprint of the weights.
    """
    protocol = manifest.protocol
    return tuple(
        (name, member.model, f"{member.sampling.model_dump_json()} {member.fingerprint}")
        for name in protocol.other_voices
        if can_hear(protocol, protocol.policy, name) and (member := manifest.cast.get(name))
    )


def policy_identity(manifest: RunManifest) -> str:
    """Return the fingerprint of the weights of a run's policy, else its model name."""
    return manifest.policy_member.fingerprint or manifest.policy_member.model
