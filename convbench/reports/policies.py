"""The policies of a report: one for each run and its evaluations, each with its own base."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench.models.weights_path import folder_of, weights_of
from convbench.reports.published import method_order
from convbench.schema.experiment import POOLED
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint

BASE = "Base"
ROUND = re.compile(r"-round-(\d+)$")
"""End of the folder of an evaluation after one of several rounds."""


@dataclass(frozen=True)
class Policy:
    """One row of a report's tables."""

    name: str
    """`Base`, a learner's label, or a model."""
    runs: tuple[Run, ...]
    """Its runs: one for each seed that is pooled."""
    base: str | None = None
    """Id of the run of the policy that it is compared with; None if it is compared with none."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """The resolved recipe of its checkpoint; empty if it was not trained."""
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
    def label(self) -> str:
        """Return the name of its learner as in papers, or of its recipe."""
        return str(self.recipe.get("label") or self.recipe.get("name") or self.run.path.name)

    @property
    def model(self) -> str:
        """Return the model of its speaker, local paths shortened to their last folder."""
        return short_model(self.run.manifest.policy_member.model)

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
        counts = as_mapping(self.trainings[0].get("counts") if self.trainings else None)
        found = self.data.get("rows") or counts.get("pairs", counts.get("rows"))
        return int(found) if isinstance(found, int | float) else None

    def is_called(self, typed: str) -> bool:
        """Return whether a user may mean it: by its name, recipe or folder, in any case."""
        names = (self.name, self.recipe.get("name") or "", self.run.path.name)
        return typed.casefold() in [str(name).casefold() for name in names]


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value of a file that others may have written if it is a mapping, else an empty
    one."""
    return value if isinstance(value, Mapping) else {}


def read_policy(run: Run, **more: Any) -> Policy:
    """Return the policy of a run, without its base; `more` are further fields. Raise RunError for a
    damaged file."""
    found = _checkpoint_of(run)
    recipe = {**(found.recipe if found else {}), **as_mapping(run.manifest.extra.get("recipe"))}
    policy = Policy(
        BASE, (run,), recipe=recipe, trainings=(found.training if found else {},), **more
    )
    if policy.is_own:
        return policy
    if not recipe:
        return replace(policy, name=run.path.name)
    after = "" if policy.round is None else f" round {policy.round}"
    pooled = " (all tasks)" if run.path.name.startswith(POOLED) else ""
    return replace(policy, name=policy.label + after + pooled)


def _checkpoint_of(run: Run) -> Checkpoint | None:
    """Return the checkpoint that a run evaluates: where it was, else at the end of that path below
    the parent's folder, which may have been moved; None if it is not on disk."""
    if run.manifest.checkpoint is None:
        return None
    path = folder_of(run.manifest.checkpoint).expanduser()
    above = run.path.parent.parent
    moved = (above.joinpath(*path.parts[start:]) for start in range(len(path.parts)))
    return next((found for found in map(Checkpoint, (path, *moved)) if found.recipe), None)


def with_bases(family: Sequence[Policy]) -> list[Policy]:
    """Return the policies of one run and its evaluations, each with its base.

    The base of a trained policy is the model that its training started from, if that was evaluated
    here, else the run's own policy, with a note if it started elsewhere. Other models are compared
    with the run's own policy. Bases are named `Base`, the other untrained policies by their model.
    """
    own = next((policy for policy in family if policy.is_own), None)
    untrained = [policy for policy in family if not policy.recipe]
    placed = [_with_base(policy, own, untrained) for policy in family]
    starts = {policy.base for policy in placed if policy.recipe and policy.base}
    bases = starts or ({own.run.manifest.id} if own else set())
    names = {
        policy.run.manifest.id: BASE
        if policy.run.manifest.id in bases
        else policy.model_name
        if policy is own
        else policy.name
        for policy in untrained
    }
    return [replace(p, name=names.get(p.run.manifest.id, p.name)) for p in placed]


def _with_base(policy: Policy, own: Policy | None, untrained: Sequence[Policy]) -> Policy:
    if policy is own:
        return policy
    start = _start_of(policy)
    base = next((other for other in untrained if start and _is_model(other, *start)), None)
    note = ""
    if start and base is None and own is not None:
        note = (
            f"{policy.name} started from {short_model(start[0])}, which was not evaluated here: "
            "its difference is not the effect of training (evaluate it: convbench eval MODEL)"
        )
    base = base or own
    return replace(policy, base=base.run.manifest.id if base else None, note=note)


def _start_of(policy: Policy) -> tuple[str, str | None] | None:
    """Return (model, fingerprint of its weights if known) that a training, or the first of several
    successive ones, began from; None if it is not known."""
    training = policy.trainings[0]
    earlier = training.get("earlier")
    if isinstance(earlier, list) and earlier and isinstance(earlier[-1], Mapping):
        training = {"base": earlier[-1].get("base")}
    base, mark = training.get("base"), training.get("base_fingerprint")
    return (str(base), str(mark) if mark else None) if base else None


def _is_model(policy: Policy, model: str, mark: str | None) -> bool:
    """Return whether a policy is this model, by the fingerprints of local weights (16 digits; a
    Hub id has a commit) if both are known, else by name without provider and folder."""
    member = policy.run.manifest.policy_member
    if len(mark or "") == len(member.fingerprint or "") == 16:
        return mark == member.fingerprint
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
    told = {name: iter(_tell_apart(some, own)) for name, some in alike.items()}
    return [replace(policy, name=policy.name + next(told[policy.name])) for policy in policies]


def _tell_apart(alike: Sequence[Policy], own: Mapping[str, str]) -> Iterator[str]:
    """Yield what stands behind the name of each."""
    told = [""] * len(alike)
    for tell in (
        lambda p: own.get(p.family, p.model_name) if p.recipe else p.model_name,
        _size,
        lambda p: p.run.path.name,
        lambda p: p.run.manifest.id,
    ):
        values = [tell(policy) for policy in alike]
        if len(set(told)) < len(alike) and len(set(values)) > 1:
            told = [", ".join(filter(None, each)) for each in zip(told, values, strict=True)]
    yield from (f" ({each})" if each else "" for each in told)


def _size(policy: Policy) -> str:
    rows, unit = policy.data.get("rows"), policy.data.get("unit")
    words = {"conversation": "conversations", "turn": "turns"}.get(str(unit), "rows")
    return "" if rows is None else f"{rows} {words}"


def in_order(policies: Iterable[Policy]) -> list[Policy]:
    """Return the policies of a family in the order in which papers print them, then by name, rounds
    by their number."""
    rank = {label: place for place, label in enumerate(method_order())}
    return sorted(
        policies,
        key=lambda p: (rank.get(p.name, len(rank)), p.learner, p.round or 0, p.name),
    )
