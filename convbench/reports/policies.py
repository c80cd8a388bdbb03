"""The policies of a report: one for each run and its evaluations, each with its own base."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench.models.weights_path import folder_of, weights_fingerprint, weights_of
from convbench.schema.experiment import POOLED
from convbench.schema.run import ModelConfig
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint

BASE = "Base"
ROUND = re.compile(r"-round-(\d+)$")
"""End of the folder of an evaluation after one of several rounds."""
HASH = re.compile(r"[0-9a-f]{16}")
"""A fingerprint of local weights."""


@dataclass(frozen=True)
class Policy:
    """One row of a report's tables."""

    name: str
    """`Base`, a learner's label, or a model."""
    runs: tuple[Run, ...]
    """Its runs: one for each seed that is pooled."""
    family: str
    """Id of the run whose questions it answers: its own, or its parent's."""
    seeds: tuple[int, ...]
    """Seed of the family of each run."""
    base: str | None = None
    """Id of the run of the policy that it is compared with; None if it is compared with none."""
    recipe: Mapping[str, Any] | None = None
    """The resolved recipe of its checkpoint; None if it was not trained."""
    trainings: tuple[Mapping[str, Any], ...] = ()
    """`training.json` of its checkpoints, one for each run; empty ones where it is not on disk."""
    judges: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Fingerprints of its verdicts by judge."""
    planned: int = 0
    """Number of conversations that its runs are to have in this split."""
    note: str = ""
    """A sentence on its base for the reader."""
    is_line: bool = False
    """Whether it stands for what was measured beside the run's policies, without conversations."""

    @property
    def run(self) -> Run:
        """Return its first run."""
        return self.runs[0]

    @property
    def seed(self) -> int:
        """Return the seed of its first run's family."""
        return self.seeds[0]

    @property
    def is_own(self) -> bool:
        """Return whether it is the policy of the run itself, not an evaluation beside it."""
        return self.run.manifest.parent is None and not self.is_line

    @property
    def round(self) -> int | None:
        """Return the round after which it was evaluated; None if it was not trained in rounds."""
        number = ROUND.search(self.run.path.name) if self.recipe else None
        return int(number[1]) if number else None

    @property
    def learner(self) -> str:
        """Return its name without the round, so that the rounds of one learner share it."""
        return self.name if self.round is None else self.name.replace(f" round {self.round}", "")

    @property
    def model(self) -> str:
        """Return the model of its speaker, local paths shortened to their last folder."""
        return short_model(self.run.manifest.policy_member.model)

    @property
    def model_name(self) -> str:
        """Return the last part of its model's name, without provider and folder."""
        return Path(self.model.rpartition(":")[2]).name

    @property
    def rows(self) -> int | None:
        """Return the number of rows that it was trained on; None if that is unknown."""
        asked = ((self.recipe or {}).get("data") or {}).get("rows")
        counts = (self.trainings[0] if self.trainings else {}).get("counts") or {}
        found = asked or counts.get("pairs", counts.get("rows"))
        return int(found) if isinstance(found, int | float) else None

    def aliases(self) -> set[str]:
        """Return what a user may call it, in lower case: its name, its recipe, its run's folder."""
        recipe = str((self.recipe or {}).get("name") or "")
        return {alias.casefold() for alias in (self.name, recipe, self.run.path.name) if alias}


def read_policy(run: Run, parent: Run | None = None) -> Policy:
    """Return the policy of a run, without its evaluations; `parent` is the run it belongs to.

    Raise RunError for a damaged file.
    """
    manifest = run.manifest
    recipe, training = checkpoint_of(run, parent)
    family = manifest if parent is None else parent.manifest
    return Policy(
        _name(run, recipe),
        (run,),
        family.id if parent is not None else manifest.parent or manifest.id,
        (family.seed,),
        recipe=recipe,
        trainings=(training,),
    )


def _name(run: Run, recipe: Mapping[str, Any] | None) -> str:
    if run.manifest.parent is None:
        return BASE
    if recipe is None:
        return run.path.name
    label = str(recipe.get("label") or recipe.get("name") or run.path.name)
    number = ROUND.search(run.path.name)
    pooled = " (all tasks)" if run.path.name.startswith(POOLED) else ""
    return label + (f" round {number[1]}" if number else "") + pooled


def checkpoint_of(
    run: Run, parent: Run | None = None
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return (resolved recipe, training.json) of the checkpoint that a run evaluates; None and an
    empty mapping if there is none. What the run itself records of the recipe comes first."""
    noted = run.manifest.extra.get("recipe") or {}
    recipe = {"name": noted} if isinstance(noted, str) else dict(noted)
    for folder in _checkpoint_folders(run, parent):
        checkpoint = Checkpoint(folder)
        if checkpoint.recipe:
            return {**checkpoint.recipe, **recipe}, dict(checkpoint.training)
    return recipe or None, {}


def _checkpoint_folders(run: Run, parent: Run | None) -> list[Path]:
    """Return where an evaluated checkpoint may be, those with the evaluated weights first:
    checkpoints of other rounds and folders may have the same name."""
    if run.manifest.checkpoint is None:
        return []
    path = folder_of(run.manifest.checkpoint)
    above = parent.path if parent is not None else run.path.parent.parent
    of_round = [above.joinpath(*path.parts[-5:])] if path.parts[-5:-4] == ("rounds",) else []
    folders = [*of_round, above / "checkpoints" / path.name, path.expanduser()]
    mark = run.manifest.policy_member.fingerprint
    if mark is None:
        return folders
    return sorted(folders, key=lambda folder: weights_fingerprint(folder) != mark)


def with_bases(family: Sequence[Policy]) -> list[Policy]:
    """Return the policies of one run and its evaluations, each with its base.

    The base of a trained policy is the model that its training started from, if that was evaluated
    here, else the run's own policy, with a note if it started elsewhere. Other models are compared
    with the run's own policy. Bases are named `Base`, the other untrained policies by their model.
    """
    own = next((policy for policy in family if policy.is_own), None)
    untrained = [policy for policy in family if policy.recipe is None]
    found = [(policy, *_base_in(policy, own, untrained)) for policy in family]
    starts = [base for policy, base, _ in found if policy.recipe is not None]
    bases = [base for base in starts if base is not None] or ([own] if own else [])
    named = []
    for policy, base, note in found:
        name = policy.name
        if policy.recipe is None:
            is_base = any(policy is each for each in bases)
            name = BASE if is_base else policy.model_name if policy is own else policy.name
        start = None if base is None else base.run.manifest.id
        named.append(replace(policy, name=name, base=start, note=note))
    return named


def _base_in(
    policy: Policy, own: Policy | None, untrained: Sequence[Policy]
) -> tuple[Policy | None, str]:
    """Return the base of a policy and a note on it."""
    if policy is own:
        return None, ""
    start = _start_of(policy)
    if start is None:
        return own, ""
    base = next((other for other in untrained if _is_model(other, *start)), None)
    if base is not None or own is None:
        return base, ""
    return own, (
        f"{policy.name} started from {short_model(start[0])}, which was not evaluated here: its "
        "difference is not the effect of training (evaluate it: convbench eval MODEL)"
    )


def _start_of(policy: Policy) -> tuple[str, str | None] | None:
    """Return (model, fingerprint of its weights if known) that a training, or the first of several
    successive ones, began from; None if it is not known."""
    training = policy.trainings[0] if policy.trainings else {}
    earlier = training.get("earlier")
    if isinstance(earlier, list) and earlier and isinstance(earlier[-1], Mapping):
        base = earlier[-1].get("base")
        return (str(base), None) if base else None
    base, mark = training.get("base"), training.get("base_fingerprint")
    return (str(base), str(mark) if mark else None) if base else None


def _is_model(policy: Policy, model: str, mark: str | None) -> bool:
    """Return whether a policy is this model, by the fingerprints of local weights if both are
    known, else by name without provider and folder."""
    member: ModelConfig = policy.run.manifest.policy_member
    if member.fingerprint and mark and HASH.fullmatch(mark):
        return member.fingerprint == mark
    return _last_name(member.weights or member.model) == _last_name(model)


def _last_name(model: str) -> str:
    return Path(weights_of(model) or model.rpartition(":")[2]).name.lower()


def short_model(model: str) -> str:
    """Return a model's reference, an absolute path shortened to its last folder (`local:/a/b` to
    `local:b`)."""
    scheme, colon, rest = model.rpartition(":") if "/" in model else ("", "", model)
    path = Path(rest).expanduser()
    return f"{scheme}{colon}{path.name}" if path.is_absolute() else model


def with_unique_names(policies: Sequence[Policy]) -> list[Policy]:
    """Return the policies with unique names: those that share one get in brackets what tells them
    apart, the model of their family, their number of rows, their folder, or at last the run."""
    own = {policy.family: policy.model_name for policy in policies if policy.is_own}
    alike: dict[str, list[Policy]] = {}
    for policy in policies:
        alike.setdefault(policy.name, []).append(policy)
    suffixes = {name: iter(_suffixes(those, own)) for name, those in alike.items()}
    return [replace(policy, name=policy.name + next(suffixes[policy.name])) for policy in policies]


def _suffixes(alike: Sequence[Policy], own: Mapping[str, str]) -> list[str]:
    told: list[list[str]] = [[] for _ in alike]
    for tell in (
        lambda policy: (
            own.get(policy.family, policy.model_name) if policy.recipe else policy.model_name
        ),
        _size,
        lambda policy: policy.run.path.name,
        lambda policy: policy.run.manifest.id,
    ):
        if len({tuple(parts) for parts in told}) == len(alike):
            break
        values = [tell(policy) for policy in alike]
        if len(set(values)) > 1:
            told = [[*parts, value] for parts, value in zip(told, values, strict=True)]
    return [f" ({', '.join(filter(None, parts))})" if any(parts) else "" for parts in told]


def _size(policy: Policy) -> str:
    data = (policy.recipe or {}).get("data") or {}
    rows, unit = data.get("rows"), data.get("unit")
    words = {"conversation": "conversations", "turn": "turns"}.get(str(unit), "rows")
    return "" if rows is None else f"{rows} {words}"


def in_order(policies: Iterable[Policy], labels: Sequence[str]) -> list[Policy]:
    """Return the policies of a family in the order of these labels, then by name, rounds by their
    number."""
    rank = {label: place for place, label in enumerate(labels)}
    return sorted(
        policies,
        key=lambda p: (rank.get(p.name, len(rank)), p.learner, p.round or 0, p.name),
    )
