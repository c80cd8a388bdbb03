"""The policies of a report: one for each run and its evaluations, each with its own base."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench.models.weights_path import folder_of, weights_of
from convbench.schema.experiment import POOLED
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint

BASE = "Base"
ROUND = re.compile(r"-round-(\d+)$")
"""End of the folder of an evaluation after one of several rounds."""


@dataclass(frozen=True)
class Policy:
    """One row of a report's tables.

    `base` is the id of the run of the policy that it is compared with, `recipe` the resolved recipe
    of its checkpoint (empty if it was not trained), `judges` has the fingerprints of its verdicts,
    and `note` is a sentence on its base for the reader.
    """

    name: str
    """`Base`, a learner's label, or a model."""
    runs: tuple[Run, ...]
    """Its runs: one for each seed that is pooled."""
    base: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    trainings: tuple[Mapping[str, Any], ...] = ()
    """`training.json` of its checkpoints, one for each run; empty ones where it is not on disk."""
    judges: Mapping[str, frozenset[str]] = field(default_factory=dict)
    planned: int = 0
    """Number of conversations that its runs are to have in this split."""
    note: str = ""
    is_line: bool = False
    """Whether it stands for what was measured beside the run's policies, without conversations."""

    @property
    def run(self) -> Run:
        """Return its first run."""
        return self.runs[0]

    @property
    def family(self) -> str:
        """Return the id of the run whose questions it answers: its own, or its parent's."""
        return self.run.manifest.parent or self.run.manifest.id

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
        return _short(self.run.manifest.policy_member.model)

    @property
    def model_name(self) -> str:
        """Return the last part of its model's name, without provider and folder."""
        return Path(self.model.rpartition(":")[2]).name

    @property
    def data(self) -> Mapping[str, Any]:
        """Return the recipe's section on data; empty if there is none."""
        return as_mapping(self.recipe.get("data"))

    @property
    def rows(self) -> int | None:
        """Return the number of rows that it was trained on; None if that is unknown."""
        counts = (self.trainings[0].get("counts") or {}) if self.trainings else {}
        found: int | None = self.data.get("rows") or counts.get("pairs", counts.get("rows"))
        return found


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value of a file of others if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def read_policy(run: Run, **more: Any) -> Policy:
    """Return the policy of a run, without its base; `more` are further fields."""
    recipe: Mapping[str, Any] = {}
    training: Mapping[str, Any] = {}
    if run.manifest.checkpoint:
        found = Checkpoint(folder_of(run.manifest.checkpoint).expanduser())
        if not found.is_finished:  # the run was moved with its checkpoints
            found = Checkpoint(run.path.parent.parent / "checkpoints" / found.folder.name)
        recipe, training = found.recipe, found.training
    recipe = {**recipe, **as_mapping(run.manifest.extra.get("recipe"))}
    policy = Policy(BASE, (run,), recipe=recipe, trainings=(training,), **more)
    if policy.is_own:
        return policy
    label = recipe.get("label") or recipe.get("name") or run.path.name
    after = "" if policy.round is None else f" round {policy.round}"
    pooled = " (all tasks)" if run.path.name.startswith(POOLED) else ""
    return replace(policy, name=f"{label}{after}{pooled}")


def with_bases(family: Sequence[Policy]) -> list[Policy]:
    """Return the policies of one run and its evaluations, each with its base.

    The base of a trained policy is the model that its training started from, if that was evaluated
    here, else the run's own policy, with a note if it started elsewhere. Other models are compared
    with the run's own policy. Bases are named `Base`, the other untrained policies by their model.
    """
    own = next((policy for policy in family if policy.is_own), None)
    untrained = [policy for policy in family if not policy.recipe]
    placed = []
    for policy in family:
        # Of successive trainings the first one is the last in `earlier`.
        training = [policy.trainings[0], *(policy.trainings[0].get("earlier") or [])][-1]
        start, note = training.get("base"), ""
        base = next((other for other in untrained if start and _is_model(other, training)), None)
        if start and base is None and own is not None:
            note = (
                f"{policy.name} started from {_short(start)}, which was not evaluated here: its "
                "difference is not the effect of training (evaluate it: convbench eval MODEL)"
            )
        base = None if policy is own else base or own
        placed.append(replace(policy, base=base.run.manifest.id if base else None, note=note))
    bases = {policy.base for policy in placed if policy.recipe and policy.base}
    bases = bases or ({own.run.manifest.id} if own else set())
    return [
        replace(p, name=BASE)
        if not p.recipe and p.run.manifest.id in bases
        else replace(p, name=p.model_name)
        if not p.recipe and p.is_own
        else p
        for p in placed
    ]


def _is_model(policy: Policy, training: Mapping[str, Any]) -> bool:
    """Return whether a training began from this policy, by the fingerprints of local weights (16
    digits; a Hub id has a commit) if both are known, else by name without provider and folder."""
    member, mark = policy.run.manifest.policy_member, training.get("base_fingerprint")
    if len(mark or "") == len(member.fingerprint or "") == 16:
        return mark == member.fingerprint
    ours, theirs = (
        Path(weights_of(name) or name.rpartition(":")[2]).name.lower()
        for name in (member.weights or member.model, training["base"])
    )
    return ours == theirs


def _short(model: str) -> str:
    # `local:/a/b` is shown as `local:b`.
    scheme, colon, rest = model.rpartition(":")
    path = Path(rest).expanduser()
    return f"{scheme}{colon}{path.name}" if path.is_absolute() else model


def with_unique_names(policies: Sequence[Policy]) -> Sequence[Policy]:
    """Return the policies with unique names: those that share one get in brackets what tells them
    apart, the model of their family, else their folder, or at last the run."""
    own = {policy.family: policy.model_name for policy in policies if policy.is_own}
    tells: tuple[Callable[[Policy], str], ...] = (
        lambda p: own.get(p.family, p.model_name) if p.recipe else p.model_name,
        lambda p: p.run.path.name,
        lambda p: p.run.manifest.id,
    )
    for tell in tells:
        alike = Counter(name for name, _ in {(p.name, tell(p)) for p in policies})
        policies = [
            replace(p, name=f"{p.name} ({tell(p)})") if alike[p.name] > 1 else p for p in policies
        ]
    return policies
