"""Estimate what the steps of an experiment take: calls, tokens, dollars, steps, disk, hours."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from convbench import catalog
from convbench.engine.budget import usual_prompt
from convbench.errors import ConvbenchError
from convbench.experiment.cells import Part
from convbench.experiment.preflight import Preflight, Ready, rows_of
from convbench.judge.adaptation.runner import settings_of as adaptation_settings
from convbench.judge.adaptation.settings import steps as texts_steps
from convbench.judge.ask import judge_messages
from convbench.judge.kinds import kind_of
from convbench.judge.resolve import Judge
from convbench.learn.steps import Steps
from convbench.models.shape import shape_of
from convbench.options.experiment import ExperimentOptions
from convbench.rollout.manifest import ask_again
from convbench.rollout.preview import Preview, dollars, headroom, preview
from convbench.schema import Member, ProtocolSpec
from convbench.schema.recipe import Recipe
from convbench.tasks.arc_agi.edit import MOST_STEPS


def weights_of(model: str) -> int | None:
    """Return the number of weights of a model (a path, a Hub id or a reference to one), from its
    shape; None if the model is not available or its shape is unknown."""
    found = shape_of(model)
    return None if found is None else found.weights


FLOPS = 4e14
"""Assumed floating-point operations a second of one accelerator, in training and reading prompts:
two fifths of an H100's peak in bf16."""
WRITING = 2e13
"""Assumed weights times tokens that it generates a second, over many conversations at once: 2,500
tokens a second with 8 billion weights."""
TRAINED, READ = 6, 2
"""Operations for each weight and token, in training and in reading."""
STEP_S = 0.1
"""Least seconds of one step of an adaptation: its batch is too small for `FLOPS`."""
LINE = 40
"""Tokens of a self-edit that become one text."""
RECORDED = 12
"""Bytes on disk a token of a conversation: its record, its calls in the journal, its verdicts."""
KEPT, SAVED = 2, 14
"""Bytes a weight of a checkpoint (bf16), and of one to resume from (with AdamW's two moments and
its copy of the weights)."""
OWN = "local:checkpoint"
"""Model reference that stands for a policy that is trained in this experiment."""


@dataclass
class Amount:
    """Estimate of what some steps take."""

    conversations: int = 0
    calls: int = 0
    """Calls of all speakers."""
    verdicts: int = 0
    """Conversations judged, counted once for each judge."""
    tokens: int = 0
    """Most tokens of prompts and replies, judges' included."""
    usd: float = 0.0
    """Most dollars, for models whose price is known."""
    unpriced: set[str] = field(default_factory=set)
    """Models whose price is unknown."""
    steps: int = 0
    """Most steps of the optimiser."""
    disk: float = 0.0
    """Bytes that remain on disk."""
    passing: float = 0.0
    """Bytes of the largest training's checkpoints to resume from, which are deleted later."""
    hours: float = 0.0
    """Hours of one accelerator."""
    unweighed: set[str] = field(default_factory=set)
    """Models with an unknown number of weights; their disk and hours are not counted."""

    def add(self, other: Amount) -> None:
        """Add the estimate of other steps."""
        for name in (
            "conversations",
            "calls",
            "verdicts",
            "tokens",
            "usd",
            "steps",
            "disk",
            "hours",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.passing = max(self.passing, other.passing)
        self.unpriced |= other.unpriced
        self.unweighed |= other.unweighed


def estimate(
    parts: Sequence[Part], found: Preflight, options: ExperimentOptions
) -> dict[str, Amount]:
    """Return an estimate for each cell that could be resolved, by folder name; steps that two
    experiments share count once."""
    amounts: dict[str, Amount] = {}
    seen: set[tuple[str, str]] = set()
    for one in parts:
        ready = found.cells.get(one.step.cell.name)
        if ready is None:
            continue
        amount = amounts.setdefault(one.step.cell.name, Amount())
        try:
            amount.add(_Cell(ready, found, options, seen).of(one))
        except ConvbenchError as error:  # e.g. a prompt that cannot be rendered
            found.lacks(str(error), one.step.address)
    return amounts


@dataclass
class _Cell:
    """Estimator of one cell's steps, which skips what is counted already."""

    ready: Ready
    found: Preflight
    options: ExperimentOptions
    seen: set[tuple[str, str]]

    def of(self, one: Part) -> Amount:
        """Return what a step takes that was not counted yet."""
        step = one.step
        policy = self.ready.manifest.cast[self.ready.manifest.protocol.policy]
        if step.kind == "train":
            return self._trained(one, policy) if self._new(step.address) else Amount()
        shown = self._preview(one)
        total = Amount()
        if step.kind != "judge" and self._new(step.address):
            total.add(self._had(shown, policy))
        for name in one.spec.judges if step.kind != "build" else ():
            judge = self.found.judges.get((step.cell.task, name))
            if judge is not None and self._new(step.address, name):
                total.add(self._judged(shown, judge))
        return total

    def _new(self, address: str, judge: str = "") -> bool:
        if (address, judge) in self.seen:
            return False
        self.seen.add((address, judge))
        return True

    def _preview(self, one: Part) -> Preview:
        """Return the preview of a step's conversations: of all questions, or with a checkpoint on
        the test questions."""
        manifest = self.ready.manifest
        if one.step.kind == "eval":
            recipe = self.found.recipes.get((one.step.needs()[-1], one.spec.name))
            cast = {**manifest.cast, manifest.protocol.policy: Member(model=OWN)}
            protocol = self._protocol(recipe)
            if protocol is not None:
                cast = {name: cast.get(name, Member(model="script")) for name in protocol.speakers}
                cast[protocol.policy] = Member(model=OWN)
            limits = manifest.cast[manifest.protocol.policy].sampling
            cast = {
                name: member.model_copy(update={"sampling": limits})
                for name, member in cast.items()
            }
            manifest = ask_again(manifest, cast, split="test", protocol=protocol)
        return preview(
            manifest,
            self.ready.loaded.examples,
            self.options.specs.folders,
            batch=self.options.calls.batch,
        )

    def _protocol(self, recipe: Recipe | None) -> ProtocolSpec | None:
        if recipe is None or recipe.eval_protocol is None:
            return None
        return catalog.load(
            ProtocolSpec, "protocols", recipe.eval_protocol, specs=self.options.specs.folders
        )

    def _had(self, shown: Preview, policy: Member) -> Amount:
        """Return what it takes to build conversations."""
        taken = shown.estimate
        size = self._weights(policy)
        here = policy.model.partition(":")[0] in ("local", "vllm")
        seconds = taken.prompt_tokens * READ / FLOPS + taken.reply_tokens / WRITING
        return Amount(
            taken.conversations,
            taken.calls,
            0,
            taken.tokens,
            taken.usd or 0.0,
            set(shown.unpriced),
            disk=taken.conversations * _longest(shown) * RECORDED,
            hours=seconds * (size or 0) / 3600 if here else 0.0,
            unweighed=set() if size or not here else {policy.model},
        )

    def _judged(self, shown: Preview, judge: Judge) -> Amount:
        """Return what it takes to judge conversations: one call for each, or for each turn if turns
        are judged, with replies of full length."""
        count = shown.estimate.conversations
        if kind_of(judge.spec).measures in ("adaptations", "solutions"):
            return self._adapted(shown, judge)
        if judge.model is None:
            return Amount(verdicts=count)
        asks = count * (max(1, self.ready.manifest.turns) if judge.spec.per == "turn" else 1)
        prompt = usual_prompt(judge_messages(judge.spec, shown.played, shown.example))
        prompt += shown.replies
        folders = self.options.specs.folders
        reply = judge.spec.max_tokens + headroom(judge.model, folders, judge.short)
        batch = self.options.calls.batch
        price = dollars(judge.model, prompt, reply, folders, judge.short, batch=batch)
        return Amount(
            verdicts=count,
            tokens=asks * (prompt + reply),
            usd=asks * (price or 0.0),
            unpriced=set() if price is not None else {judge.model},
        )

    def _adapted(self, shown: Preview, judge: Judge) -> Amount:
        """Return what it takes to adapt to every self-edit: the steps of the inner loop for each
        seed, then the answers, generated in one batch."""
        policy = self.ready.manifest.cast[self.ready.manifest.protocol.policy]
        learner = str(judge.spec.args.get("learner") or "") or None
        size = self._weights(policy, learner)
        tokens = _longest(shown)
        if kind_of(judge.spec).measures == "solutions":
            steps, texts, written = MOST_STEPS, 2 * tokens, 0
        else:
            inner = adaptation_settings(judge).inner
            found = 1 + math.ceil(shown.replies / LINE)
            steps = texts_steps(found, inner) * inner.seeds
            texts, written = math.ceil(tokens * steps / max(1, found)), inner.max_tokens
        adapting = max(steps * STEP_S, TRAINED * (size or 0) * texts / FLOPS)
        seconds = shown.estimate.conversations * (adapting + written * STEP_S / 4)
        return Amount(
            verdicts=shown.estimate.conversations,
            hours=seconds / 3600 if size else 0.0,
            unweighed=set() if size else {learner or policy.model},
        )

    def _trained(self, one: Part, policy: Member) -> Amount:
        """Return what a training takes."""
        recipe = self.found.recipes.get((one.step.address, one.spec.name))
        if recipe is None:  # trained already, or not trainable
            return Amount()
        shown = preview(self.ready.manifest, self.ready.loaded.examples, self.options.specs.folders)
        manifest = self.ready.manifest
        each = max(1, manifest.turns) if recipe.data.unit == "turn" else 1
        logs = [self.found.cells.get(cell.name) for cell in one.step.pooled] or [self.ready]
        logged = sum(rows_of(one, recipe) for one in logs if one is not None)
        rows = min(logged, one.step.rows or sys.maxsize)
        fit = recipe.fit
        steps = Steps(rows, recipe.data.unit, fit, self.found.processes.get(recipe.launch, 1))
        share = min(1.0, steps.total / steps.an_epoch / fit.epochs)  # less where steps are limited
        size = self._weights(policy, recipe.model)
        tokens = rows / each * fit.epochs * share * _longest(shown)
        saves = min(fit.save_limit, math.ceil(fit.epochs)) if fit.save == "epoch" else 0
        return Amount(
            steps=steps.total,
            disk=KEPT * (size or 0),
            passing=SAVED * (size or 0) * saves,
            hours=TRAINED * (size or 0) * tokens / FLOPS / 3600,
            unweighed=set() if size else {policy.model},
        )

    def _weights(self, policy: Member, model: str | None = None) -> int | None:
        place = model or policy.weights or policy.model
        return weights_of(place) if place.partition("/")[0] != "hosted_vllm" else None


def _longest(shown: Preview) -> int:
    """Return the most tokens of a conversation."""
    return usual_prompt(shown.calls[-1].messages) + shown.replies if shown.calls else shown.replies


def total(amounts: Sequence[Amount]) -> Amount:
    """Return the sum of estimates."""
    found = Amount()
    for one in amounts:
        found.add(replace(one))
    return found
