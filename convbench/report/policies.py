"""Policies and what they did: one run is one policy, its conversations graded, with verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import Any

from convbench.answers import grade
from convbench.errors import RunError
from convbench.models.where import folder_of
from convbench.schema import JudgeSpec, Verdict
from convbench.schema.experiment import POOLED
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint
from convbench.store.keys import Names
from convbench.views import sent_temperature

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
"""Recipes as the literature writes them, in the order of the papers' tables."""
BASE = NAMES["base"]
NOTHING: Mapping[str, Any] = MappingProxyType({})
"""What most verdicts have of details: one mapping for all of them."""
_ROUND = re.compile(r"-round-(\d+)$")


@dataclass(frozen=True, slots=True)
class Scored:
    """What one judge said of one conversation."""

    fingerprint: str
    scores: Mapping[str, float]
    reward: float | None
    failed: bool
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """One conversation of a policy."""

    unit: str
    """Names the same place in another policy's run: question, sample, temperature."""
    group: str
    """The independent unit."""
    temperature: float | None
    """None where none was sent."""
    failed: bool
    correct: bool | None
    """None where it failed or cannot be graded."""
    unparsed: bool
    """Graded, and no answer could be read."""
    thinking: bool | None
    """Whether the last turn thinks in tags."""
    reasoned: bool | None
    """Whether it was thought of in a channel of its own."""
    flags: tuple[str, ...]
    """Findings of the fidelity checks, `SPEAKER:FINDING`."""
    verdicts: Mapping[str, Scored]
    """By judge."""
    reviews: Mapping[str, Scored] = field(default_factory=dict)
    """By judge, of those that review the simulated human."""
    talk: str = ""
    """conversation_id."""
    words: int | None = None
    """Words of the policy's turns."""


@dataclass(frozen=True)
class Policy:
    """One line of a report's table."""

    name: str
    """Base, a learner, or a model."""
    run: Run
    split: str
    rows: tuple[Observation, ...]
    planned: int
    """Conversations the run is meant to hold in this split."""
    family: str
    """Id of the run whose questions these are: its own, or its parent's."""
    is_base: bool = False
    """Whether it is the policy that the others were trained from."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """The resolved recipe of its checkpoint, where it lies here."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """`training.json` of its checkpoint, where it lies here."""
    members: tuple[Policy, ...] = ()
    """The policies this one was pooled from."""

    @property
    def judges(self) -> tuple[str, ...]:
        """Judges with a verdict on these conversations, in order of appearance."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.verdicts))

    def fingerprints(self, judge: str) -> tuple[str, ...]:
        """Fingerprints under which this judge gave its verdicts here."""
        found = (row.verdicts[judge].fingerprint for row in self.rows if judge in row.verdicts)
        return tuple(sorted(set(found)))


def judge_spec(policies: Iterable[Policy], judge: str | None) -> JudgeSpec | None:
    """Return a judge's spec as the runs kept it; None where none of them did."""
    for policy in policies:
        specs = policy.run.judge_specs() if judge in policy.judges else {}
        for fingerprint in policy.fingerprints(judge or ""):
            if fingerprint in specs:
                return specs[fingerprint]
    return None


def read_policies(run: Run, split: str) -> list[Policy]:
    """Return a run's own policy, where it has conversations of this split, then its children's."""
    own = read_policy(run, split)
    children = [read_policy(child, split, parent=run) for child in run.children()]
    found = [policy for policy in (own, *children) if policy.rows]
    if not found:
        raise RunError(
            f"{run.path}: found no conversations of split {split}; expected some: build them "
            f"(convbench build --run {run.path}), or report another split with --split"
        )
    return found


def read_policy(run: Run, split: str, parent: Run | None = None) -> Policy:
    """Read one run without its children. `split` is a split's name or `all`."""
    manifest = run.manifest
    recipe, training = checkpoint_of(run, parent)
    rows = tuple(_rows(run, split))
    child = manifest.parent is not None
    return Policy(
        name=_name(run, recipe) if child else BASE,
        run=run,
        split=split,
        rows=rows,
        planned=max(_planned(run, split), len(rows)),
        family=manifest.parent or manifest.id,
        is_base=not child,
        recipe=recipe,
        training=training,
    )


def _name(run: Run, recipe: Mapping[str, Any]) -> str:
    """Return the recipe's name, with the round of one that is learnt in rounds, and whether an
    experiment had it learn of all its tasks."""
    name = str(recipe.get("name") or run.path.name)
    number = _ROUND.search(run.path.name) if recipe else None
    pooled = " (all tasks)" if recipe and run.path.name.startswith(POOLED) else ""
    return NAMES.get(name, name) + (f" round {number[1]}" if number else "") + pooled


def round_of(policy: Policy) -> tuple[str, int] | None:
    """Return what a policy that was learnt in rounds is called without its round, and which it is;
    None for any other."""
    number = _ROUND.search(policy.run.path.name) if policy.recipe and not policy.is_base else None
    if number is None:
        return None
    return policy.name.replace(f" round {number[1]}", ""), int(number[1])


def _planned(run: Run, split: str) -> int:
    manifest = run.manifest
    if manifest.kind == "import":
        return 0
    return sum(
        manifest.samples_of(example.split)
        for example in run.examples.values()
        if split in ("all", example.split) and manifest.split in ("all", example.split)
    )


def _rows(run: Run, split: str) -> Iterator[Observation]:
    protocol, examples = run.manifest.protocol, run.examples
    wanted = Names(key for key, e in examples.items() if split in ("all", e.split))
    asked = Names(one.conversation_id for one in run.heads() if one.example_id in wanted)
    verdicts: dict[str, dict[str, Scored]] = {}
    reviews: dict[str, dict[str, Scored]] = {}
    reviewers = run.reviewers()
    for verdict in run.verdicts():
        if verdict.conversation_id in asked:
            into = reviews if verdict.fingerprint in reviewers else verdicts
            own = into.setdefault(verdict.conversation_id, {})
            own[intern(verdict.judge)] = _scored(verdict)
    for talk in run.conversations():
        if talk.example_id not in wanted or talk.branch is not None:
            continue
        example = examples[talk.example_id]
        found = grade(protocol, talk, example)
        yield Observation(
            unit=f"{talk.example_id}#{talk.sample}@{talk.temperature:g}",
            group=intern(example.group_id),
            temperature=sent_temperature(protocol, talk),
            failed=talk.failure is not None,
            correct=found.correct,
            unparsed=found.correct is not None and found.answer is None,
            thinking=found.thinking,
            reasoned=found.reasoned,
            flags=talk.flags,
            verdicts=verdicts.get(talk.conversation_id, {}),
            reviews=reviews.get(talk.conversation_id, {}),
            talk=talk.conversation_id,
            words=found.words,
        )


def _scored(verdict: Verdict) -> Scored:
    return Scored(
        intern(verdict.fingerprint), verdict.scores, verdict.reward,
        failed=verdict.failure is not None, details=verdict.details or NOTHING,
    )  # fmt: skip


def checkpoint_of(run: Run, parent: Run | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (resolved recipe, training.json) of the checkpoint that a child run evaluates.

    The manifest's `extra.recipe` (a name, or a mapping) goes before the checkpoint's own file;
    both are empty where neither is there.
    """
    noted = run.manifest.extra.get("recipe") or {}
    recipe = {"name": noted} if isinstance(noted, str) else dict(noted)
    for folder in _folders(run, parent):
        found = Checkpoint(folder)
        if found.recipe:
            return {**found.recipe, **recipe}, dict(found.training)
    return recipe, {}


def _folders(run: Run, parent: Run | None) -> Iterator[Path]:
    if run.manifest.checkpoint is None:
        return
    plain = folder_of(run.manifest.checkpoint)
    above = parent.path if parent is not None else run.path.parent.parent
    yield above / "checkpoints" / plain.name
    yield plain.expanduser()
