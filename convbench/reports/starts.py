"""The model that a policy was trained from, and which policy is Base.

Base is the policy that generated the log. If the trained policies began from another model, their
difference to that policy is not the effect of training; if that model was evaluated too, it is
Base instead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convbench.models.weights_path import resolve_reference
from convbench.reports.policies import BASE, Policy, plain_name
from convbench.schema.run import ModelConfig

LOG = "Log"
"""Name of the policy that generated the log, if another one is Base."""
_HASH = re.compile(r"[0-9a-f]{16}")
"""A fingerprint of local weights."""


@dataclass(frozen=True, slots=True)
class StartModel:
    """The model that a training, or the first of several successive trainings, began from."""

    model: str
    fingerprint: str | None
    """Fingerprint of its weights, or its commit on the Hub; None if it was not recorded."""

    def is_model_of(self, member: ModelConfig) -> bool:
        """Return True if a speaker is this model, by the fingerprints of local weights if both are
        known.

        Otherwise names are compared in lower case, without provider and folder.
        """
        own = member.fingerprint
        if own and self.fingerprint and _HASH.fullmatch(self.fingerprint):
            return own == self.fingerprint
        return _model_name(member.weights or member.model) == _model_name(self.model)


def start_of(policy: Policy) -> StartModel | None:
    """Return the model that a policy was trained from, for successive trainings the first one's;
    None if it is not known.

    It is not known for an untrained policy, or if its checkpoint is not on disk. For successive
    trainings the fingerprint is None.
    """
    training = policy.training
    earlier = training.get("earlier")
    if isinstance(earlier, list) and earlier and isinstance(earlier[-1], Mapping):
        base: Any = earlier[-1].get("base")
        return StartModel(str(base), None) if base else None
    base = training.get("base")
    mark = training.get("base_fingerprint")
    return StartModel(str(base), str(mark) if mark else None) if base else None


def with_start_as_base(family: Sequence[Policy]) -> list[Policy]:
    """Return the family with the model that the trained policies began from renamed to `Base`, and
    the run's own policy to `Log`.

    The list is a copy without changes if they began from the run's own policy or from several
    models, or if the model was not evaluated.
    """
    start = _foreign_start(family)
    start_policies = [
        p for p in family if start is not None and not start_of(p) and _is_start(p, start)
    ]
    if not start_policies:
        return list(family)
    return [
        replace(policy, name=BASE, is_base=True)
        if policy is start_policies[0]
        else replace(policy, name=LOG, is_base=False)
        if policy.is_base
        else policy
        for policy in family
    ]


def foreign_starts(policies: Sequence[Policy]) -> Iterator[str]:
    """Yield a sentence for each model other than Base that trained policies began from, naming
    these policies; nothing without Base."""
    base = next((policy for policy in policies if policy.is_base), None)
    if base is None:
        return
    names_by_start: dict[str, list[str]] = {}
    for policy in policies:
        start = start_of(policy)
        if start is not None and not _is_start(base, start):
            names_by_start.setdefault(start.model, []).append(policy.name)
    for model, names in names_by_start.items():
        yield (
            f"Base is {short_model(base.model)}, which generated the log. {', '.join(names)} "
            f"started from another model, {short_model(model)}: the difference to Base is not the "
            "effect of training. Evaluate that model to make it Base: convbench eval "
            f"{_model_reference(model)} "
            "--run RUN"
        )


def model_names(policies: Sequence[Policy]) -> str:
    """Return one line, `NAMES: MODEL; NAMES: trained from MODEL`, with Base first.

    Trained policies without a known start, and policies named like their model, are left out. "" if
    none is left.
    """
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


ENGINE_NAMES = {"vllm": "vLLM", "local": "convbench's own engine"}
"""Engines on this machine, by the scheme of a reference."""


def engine_note(policies: Sequence[Policy]) -> str | None:
    """Return a sentence on which engine sampled Base and the trained policies, if it was not the
    same for all; None if it was. Engines differ in the last digits, and so may replies."""
    names_by_engine: dict[str, list[str]] = {}
    for policy in sorted(policies, key=lambda policy: not policy.is_base):
        scheme = policy.model.partition(":")[0]
        engine = ENGINE_NAMES.get(scheme, "a server" if "/" in scheme else None)
        if engine and (policy.is_base or start_of(policy) is not None):
            names_by_engine.setdefault(engine, []).append(policy.name)
    if len(names_by_engine) < 2:
        return None
    parts = (f"{', '.join(names)} by {engine}" for engine, names in names_by_engine.items())
    return f"Not sampled by one engine: {'; '.join(parts)}."


def short_model(model: str) -> str:
    """Return a model's reference, with an absolute path shortened to its last folder (`local:/a/b`
    to `local:b`); others are unchanged."""
    scheme, colon, rest = model.rpartition(":") if "/" in model else ("", "", model)
    path = Path(rest).expanduser()
    return f"{scheme}{colon}{path.name}" if path.is_absolute() else model


def _foreign_start(family: Sequence[Policy]) -> StartModel | None:
    """Return the single model that all trained policies began from, if it is not the run's own
    policy; else None, also if it is unknown."""
    own = next((policy for policy in family if policy.is_base), None)
    starts = {start.model: start for policy in family if (start := start_of(policy)) is not None}
    if own is None or len(starts) != 1:
        return None
    (start,) = starts.values()
    return None if _is_start(own, start) else start


def _is_start(policy: Policy, start: StartModel) -> bool:
    return start.is_model_of(policy.run.manifest.policy_member)


def _model_name(model: str) -> str:
    """Return the last component of a path, Hub id or reference, in lower case."""
    return Path(resolve_reference(model) or model.rpartition(":")[2]).name.lower()


def _model_reference(model: str) -> str:
    """Return the argument of `convbench eval` for a model, shell-quoted; `local:` for a path."""
    local = resolve_reference(model) is None and Path(model).is_absolute()
    return shlex.quote(f"local:{model}" if local else model)
