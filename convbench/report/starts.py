"""Which model a policy is, and from which one it was trained.

The policy that had the log is Base, unless the trained ones began from another model: then their
difference to it is not what the training gave them. Where that start was evaluated too, it is Base.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convbench.models.where import named
from convbench.report.naming import plain_name
from convbench.report.policies import BASE, Policy
from convbench.schema.run import Member

LOG = "Log"
"""Name of the policy that had the log, where another is Base."""
_HASH = re.compile(r"[0-9a-f]{16}")
"""A fingerprint of local weights."""


@dataclass(frozen=True, slots=True)
class Start:
    """The model that a training, or the first of several in a row, began from."""

    model: str
    fingerprint: str | None
    """Of its weights, or its commit on the Hub; None where it was not kept."""

    def is_model_of(self, member: Member) -> bool:
        """Whether a speaker is this model: by its weights where both are known, else by name,
        whoever serves it and wherever it lies."""
        own = member.fingerprint
        if own and self.fingerprint and _HASH.fullmatch(self.fingerprint):
            return own == self.fingerprint
        return _name(member.weights or member.model) == _name(self.model)


def start_of(policy: Policy) -> Start | None:
    """Return what a policy was trained from; None for one that was not, or whose checkpoint is not
    here."""
    training = policy.training
    earlier = training.get("earlier")
    if isinstance(earlier, list) and earlier and isinstance(earlier[-1], Mapping):
        base: Any = earlier[-1].get("base")
        return Start(str(base), None) if base else None
    base = training.get("base")
    mark = training.get("base_fingerprint")
    return Start(str(base), str(mark) if mark else None) if base else None


def with_start_as_base(family: Sequence[Policy]) -> list[Policy]:
    """Return a run's policy and its children's, of which Base is the evaluation of the model that
    the trained ones began from, where that is not the run's own policy and was evaluated."""
    start = _foreign_start(family)
    found = [p for p in family if start is not None and not start_of(p) and _is(p, start)]
    if not found:
        return list(family)
    return [
        replace(policy, name=BASE, is_base=True)
        if policy is found[0]
        else replace(policy, name=LOG, is_base=False)
        if policy.is_base
        else policy
        for policy in family
    ]


def foreign_starts(policies: Sequence[Policy]) -> Iterator[str]:
    """Yield what must be said of trained policies that did not begin from Base, one line a
    start."""
    base = next((policy for policy in policies if policy.is_base), None)
    if base is None:
        return
    apart: dict[str, list[str]] = {}
    for policy in policies:
        start = start_of(policy)
        if start is not None and not _is(base, start):
            apart.setdefault(start.model, []).append(policy.name)
    for model, names in apart.items():
        yield (
            f"Base is {short_model(base.model)}, which had the log. {', '.join(names)} began from "
            f"another model, {short_model(model)}: the difference to Base is not what training "
            f"gave. Evaluate that start, and it becomes Base: convbench eval {_reference(model)} "
            "--run RUN"
        )


def model_names(policies: Sequence[Policy]) -> str:
    """Return which model each policy is, or was trained from, in one line."""
    lines: dict[str, list[str]] = {}
    for policy in sorted(policies, key=lambda policy: not policy.is_base):
        start = start_of(policy)
        if start is not None:
            lines.setdefault(f"trained from {short_model(start.model)}", []).append(policy.name)
        elif not policy.recipe or policy.is_base:
            own = short_model(policy.model)
            if plain_name(policy) != own:
                lines.setdefault(own, []).append(policy.name)
    return "; ".join(f"{', '.join(names)}: {model}" for model, names in lines.items())


def short_model(model: str) -> str:
    """Return a model's reference with the folder's name alone in place of a path."""
    scheme, colon, rest = model.rpartition(":") if "/" in model else ("", "", model)
    place = Path(rest).expanduser()
    return f"{scheme}{colon}{place.name}" if place.is_absolute() else model


def _foreign_start(family: Sequence[Policy]) -> Start | None:
    """Return the one model that all trained policies began from, where the run's own policy is
    another; None where that is not so, or not known."""
    own = next((policy for policy in family if policy.is_base), None)
    starts = {start.model: start for policy in family if (start := start_of(policy)) is not None}
    if own is None or len(starts) != 1:
        return None
    (start,) = starts.values()
    return None if _is(own, start) else start


def _is(policy: Policy, start: Start) -> bool:
    manifest = policy.run.manifest
    member = manifest.cast.get(manifest.protocol.policy)
    return member is not None and start.is_model_of(member)


def _name(model: str) -> str:
    """Return the last part of a path, a Hub id, or a reference."""
    return Path(named(model) or model.rpartition(":")[2]).name.lower()


def _reference(model: str) -> str:
    """Return what `eval` takes for a model: a local one by its scheme."""
    local = named(model) is None and Path(model).is_absolute()
    return shlex.quote(f"local:{model}" if local else model)
