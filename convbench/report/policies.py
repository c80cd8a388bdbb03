"""Policies of a report: one a run, with its graded conversations and their verdicts."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from convbench.errors import RunError
from convbench.models.where import folder_of, weights_fingerprint
from convbench.report.rows import Observation, Observations, observe_run
from convbench.schema import JudgeSpec
from convbench.schema.experiment import POOLED
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint

NAMES = {
    "swift": "SWiFt",
    "refit": "ReFit",
    "dpo": "DPO",
    "star-gate": "STaR-GATE",
    "base": "Base",
    "star-gate-d": "STaR-GATE-D",
    "step-dpo": "StepDPO",
    "sweet": "SWEET-RL",
    "mt-dpo": "Multi-turn DPO",
    "rft": "Rejection fine-tuning",
    "seal": "SEAL",
    "star-gate-d-first8": "STaR-GATE-D, first 8 layers",
    "seal-few-shot": "SEAL few-shot",
}
"""Recipes' names in the literature, in the order of the papers' tables."""
BASE = NAMES["base"]
_ROUND = re.compile(r"-round-(\d+)$")


@dataclass(frozen=True)
class Policy:
    """One line of a report's table."""

    name: str
    """Base, a learner, or a model."""
    run: Run
    split: str
    observations: Observations | Sequence[Observation]
    planned: int
    """Number of conversations the run is planned to have in this split."""
    family: str
    """Id of the run whose questions it answers: its own run, or the parent run."""
    is_base: bool = False
    """Whether the other policies were trained from it."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """The resolved recipe of its checkpoint; empty if that is not on disk."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """`training.json` of its checkpoint; empty if that is not on disk."""
    members: tuple[Policy, ...] = ()
    """The policies this one was pooled from."""

    @property
    def model(self) -> str:
        """Return the model of the trained speaker; `imported` if the run does not name it."""
        manifest = self.run.manifest
        speaker = manifest.protocol.policy
        return manifest.cast[speaker].model if speaker in manifest.cast else "imported"

    @property
    def judges(self) -> tuple[str, ...]:
        """Return the judges with a verdict on these conversations, in order of appearance."""
        return tuple(self._judge_marks)

    def fingerprints(self, judge: str) -> tuple[str, ...]:
        """Return the sorted fingerprints of this judge's verdicts on these conversations."""
        return tuple(sorted(self._judge_marks.get(judge, ())))

    @cached_property
    def _judge_marks(self) -> Mapping[str, set[str]]:
        marks: dict[str, set[str]] = {}
        for row in self.observations:
            for judge, scored in row.verdicts.items():
                marks.setdefault(judge, set()).add(scored.fingerprint)
        return marks


def judge_spec(policies: Iterable[Policy], judge: str | None) -> JudgeSpec | None:
    """Return a judge's spec as stored in the policies' runs; None if none of them has it."""
    for policy in policies:
        specs = policy.run.judge_specs() if judge in policy.judges else {}
        for fingerprint in policy.fingerprints(judge or ""):
            if fingerprint in specs:
                return specs[fingerprint]
    return None


def read_policies(run: Run, split: str) -> list[Policy]:
    """Return a run's own policy and those of its children, if they have conversations of the split.

    Raises RunError if none has.
    """
    own = read_policy(run, split)
    children = [read_policy(child, split, parent=run) for child in run.child_runs()]
    policies = [policy for policy in (own, *children) if policy.observations]
    if not policies:
        raise RunError(
            f"{run.path}: found no conversations of split {split}{_help_text(run, split)}"
        )
    return policies


def _help_text(run: Run, split: str) -> str:
    """Return what to do about missing conversations of a split, and which splits the run has."""
    spoken = Counter(run.examples[head.example_id].split for head in run.conversation_rows())
    other = "".join(f"; it has {count} of {name}: --split {name}" for name, count in spoken.items())
    if run.manifest.kind == "import":
        return other or "; it was imported and holds none"
    if split == "all" or any(example.split == split for example in run.examples.values()):
        return f"; build them: convbench build --run {shlex.quote(str(run.path))}{other}"
    return f", nor questions of it{other or '; build a run with more questions'}"


def read_policy(run: Run, split: str, parent: Run | None = None) -> Policy:
    """Read one run without its children. `split` is a split's name or `all`."""
    manifest = run.manifest
    recipe, training = checkpoint_of(run, parent)
    observations = Observations(row for *_, row in observe_run(run, split))
    question_counts = Counter(q.split for q in run.questions.values() if split in ("all", q.split))
    child = manifest.parent is not None
    return Policy(
        name=_recipe_name(run, recipe) if child else BASE,
        run=run,
        split=split,
        observations=observations,
        planned=max(manifest.planned_count(question_counts), len(observations)),
        family=manifest.parent or manifest.id,
        is_base=not child,
        recipe=recipe,
        training=training,
    )


def _recipe_name(run: Run, recipe: Mapping[str, Any]) -> str:
    """Return the recipe's display name, with its round if it was trained in rounds, and a suffix if
    an experiment trained it on all tasks."""
    name = str(recipe.get("name") or run.path.name)
    number = _ROUND.search(run.path.name) if recipe else None
    pooled = " (all tasks)" if recipe and run.path.name.startswith(POOLED) else ""
    return NAMES.get(name, name) + (f" round {number[1]}" if number else "") + pooled


def round_of(policy: Policy) -> tuple[str, int] | None:
    """Return (name without the round, round) of a policy trained in rounds; None for others."""
    number = _ROUND.search(policy.run.path.name) if policy.recipe and not policy.is_base else None
    if number is None:
        return None
    return policy.name.replace(f" round {number[1]}", ""), int(number[1])


def checkpoint_of(run: Run, parent: Run | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (resolved recipe, training.json) of the checkpoint that a child run evaluates.

    The manifest's `extra.recipe` (a name, or a mapping) overrides the checkpoint's own file. Both
    are empty if there is neither.
    """
    noted = run.manifest.extra.get("recipe") or {}
    recipe = {"name": noted} if isinstance(noted, str) else dict(noted)
    for folder in _checkpoint_folders(run, parent):
        checkpoint = Checkpoint(folder)
        if checkpoint.recipe:
            return {**checkpoint.recipe, **recipe}, dict(checkpoint.training)
    return recipe, {}


def _checkpoint_folders(run: Run, parent: Run | None) -> list[Path]:
    """Return the folders where a child run's checkpoint may be, those with the evaluated weights
    first: checkpoints of other rounds and folders may have the same name."""
    if run.manifest.checkpoint is None:
        return []
    path = folder_of(run.manifest.checkpoint)
    above = parent.path if parent is not None else run.path.parent.parent
    of_round = [above.joinpath(*path.parts[-5:])] if path.parts[-5:-4] == ("rounds",) else []
    folders = [*of_round, above / "checkpoints" / path.name, path.expanduser()]
    member = run.manifest.cast.get(run.manifest.protocol.policy)
    if member is None or member.fingerprint is None:
        return folders
    return sorted(folders, key=lambda folder: weights_fingerprint(folder) != member.fingerprint)
