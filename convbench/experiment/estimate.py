"""Estimate what the steps of an experiment take: calls, tokens, dollars, steps, disk, hours."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench import catalog
from convbench.engine.budget import usual_prompt
from convbench.errors import ConvbenchError
from convbench.experiment.cells import PlannedStep
from convbench.experiment.preflight import CellInputs, PreflightFindings, count_rows
from convbench.judge.adaptation.runner import settings_of as adaptation_settings
from convbench.judge.adaptation.settings import count_steps
from convbench.judge.ask import judge_messages
from convbench.judge.kinds import kind_of
from convbench.judge.resolve import Judge
from convbench.judge.run import is_for_rewards_only
from convbench.learn.plan import FLOPS
from convbench.learn.steps import StepCount
from convbench.models.weights_path import shape_of
from convbench.options.experiment import ExperimentOptions
from convbench.rollout.manifest import follow_up_manifest
from convbench.rollout.preview import Preview, call_price, preview_build, reasoning_headroom
from convbench.schema import ModelConfig, ProtocolSpec
from convbench.schema.recipe import Recipe
from convbench.tasks.arc_agi.edit import MOST_STEPS


def count_weights(model: str) -> int | None:
    """Return the number of weights of a model (a path, a Hub id or a reference to one), from its
    shape; None if the model is not available or its shape is unknown."""
    shape = shape_of(model)
    return None if shape is None else shape.weight_count


WRITE_RATE = 2e13
"""Assumed weights times tokens that it generates a second, over many conversations at once: 2,500
tokens a second with 8 billion weights."""
TRAIN_OPERATIONS, READ_OPERATIONS = 6, 2
"""Operations for each weight and token, in training and in reading."""
STEP_S = 0.1
"""Least seconds of one step of an adaptation: its batch is too small for `FLOPS`."""
LINE_TOKENS = 40
"""Tokens of a self-edit that become one text."""
RECORD_BYTES = 12
"""Bytes on disk a token of a conversation: its record, its calls in the journal, its verdicts."""
CHECKPOINT_BYTES, RESUME_BYTES = 2, 14
"""Bytes a weight of a checkpoint (bf16), and of one to resume from (with AdamW's two moments and
its copy of the weights)."""
TRAINED_HERE = "local:checkpoint"
"""Model reference that stands for a policy that is trained in this experiment."""


@dataclass
class ResourceEstimate:
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

    def add(self, other: ResourceEstimate) -> None:
        """Add the estimate of other steps in place: sums, unions of the sets of models, and the
        larger `passing`."""
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


def estimate_cells(
    plan: Sequence[PlannedStep], findings: PreflightFindings, options: ExperimentOptions
) -> dict[str, ResourceEstimate]:
    """Return an estimate for each cell that could be resolved, by folder name.

    Steps that two experiments share count once. A step that cannot be estimated, e.g. because a
    prompt cannot be rendered, adds nothing and is added to the findings as missing.
    """
    amounts: dict[str, ResourceEstimate] = {}
    seen: set[tuple[str, str]] = set()
    for planned in plan:
        inputs = findings.cells.get(planned.step.cell.name)
        if inputs is None:
            continue
        amount = amounts.setdefault(planned.step.cell.name, ResourceEstimate())
        try:
            amount.add(_CellEstimate(inputs, findings, options, seen).estimate_step(planned))
        except ConvbenchError as error:  # e.g. a prompt that cannot be rendered
            findings.add_missing(str(error), planned.step.address)
    return amounts


@dataclass
class _CellEstimate:
    """Estimator of one cell's steps, which skips what is counted already."""

    inputs: CellInputs
    findings: PreflightFindings
    options: ExperimentOptions
    seen: set[tuple[str, str]]

    def estimate_step(self, planned: PlannedStep) -> ResourceEstimate:
        """Return what a step takes that was not counted yet."""
        step = planned.step
        policy = self.inputs.manifest.cast[self.inputs.manifest.protocol.policy]
        if step.kind == "train":
            return (
                self._training_cost(planned, policy)
                if self._is_new(step.address)
                else ResourceEstimate()
            )
        if step.policy:
            child = self.findings.policies.get(step.address)
            if child is None:  # it is missing
                return ResourceEstimate()
            policy = child.cast[child.protocol.policy]
        shown = self._preview_step(planned)
        total = ResourceEstimate()
        if step.kind != "judge" and self._is_new(step.address):
            total.add(self._build_cost(shown, policy))
        for name in planned.spec.judges if step.kind != "build" else ():
            judge = self.findings.judges.get((step.cell.task, name))
            if judge is not None and self._is_new(step.address, name):
                split = planned.spec.scored_split(name) if step.kind == "judge" else None
                share = self._share_of_split("train" if is_for_rewards_only(judge) else split)
                if is_for_rewards_only(judge) and step.kind == "eval":
                    share = 0.0
                total.add(self._judge_cost(shown, judge, share))
        return total

    def _share_of_split(self, split: str | None) -> float:
        """Return the share of a split's conversations among all; 1 for None."""
        samples = self.inputs.manifest.samples_of
        counts = Counter(example.split for example in self.inputs.loaded.examples)
        total = sum(count * samples(each) for each, count in counts.items())
        of_split = sum(count * samples(each) for each, count in counts.items() if each == split)
        return of_split / total if split is not None and total else 1.0

    def _is_new(self, address: str, judge: str = "") -> bool:
        if (address, judge) in self.seen:
            return False
        self.seen.add((address, judge))
        return True

    def _preview_step(self, planned: PlannedStep) -> Preview:
        """Return the preview of a step's conversations: of all questions, or with a checkpoint or
        an untrained model on the test questions."""
        manifest = self.findings.policies.get(planned.step.address, self.inputs.manifest)
        if planned.step.kind == "eval" and not planned.step.policy:
            recipe = self.findings.recipes.get(
                (planned.step.required_steps()[-1], planned.spec.name)
            )
            cast = {**manifest.cast, manifest.protocol.policy: ModelConfig(model=TRAINED_HERE)}
            protocol = self._eval_protocol(recipe)
            if protocol is not None:
                cast = {
                    name: cast.get(name, ModelConfig(model="script")) for name in protocol.speakers
                }
                cast[protocol.policy] = ModelConfig(model=TRAINED_HERE)
            limits = manifest.cast[manifest.protocol.policy].sampling
            cast = {
                name: member.model_copy(update={"sampling": limits})
                for name, member in cast.items()
            }
            manifest = follow_up_manifest(manifest, cast, split="test", protocol=protocol)
        return preview_build(
            manifest,
            self.inputs.loaded.examples,
            self.options.specs.folders,
            batch=self.options.calls.batch,
        )

    def _eval_protocol(self, recipe: Recipe | None) -> ProtocolSpec | None:
        if recipe is None or recipe.eval_protocol is None:
            return None
        return catalog.load_spec(
            ProtocolSpec, "protocols", recipe.eval_protocol, specs=self.options.specs.folders
        )

    def _build_cost(self, shown: Preview, policy: ModelConfig) -> ResourceEstimate:
        """Return what it takes to build conversations."""
        usage = shown.estimate
        size = self._policy_weights(policy)
        is_local = policy.model.partition(":")[0] in ("local", "vllm")
        seconds = usage.prompt_tokens * READ_OPERATIONS / FLOPS + usage.reply_tokens / WRITE_RATE
        return ResourceEstimate(
            usage.conversations,
            usage.calls,
            0,
            usage.tokens,
            usage.usd or 0.0,
            set(shown.unpriced),
            disk=usage.conversations * shown.longest_tokens * RECORD_BYTES,
            hours=seconds * (size or 0) / 3600 if is_local else 0.0,
            unweighed=set() if size or not is_local else {policy.model},
        )

    def _judge_cost(self, shown: Preview, judge: Judge, share: float) -> ResourceEstimate:
        """Return what it takes to judge a share of the conversations: one call for each, or for
        each turn if turns are judged, with replies of full length."""
        count = round(shown.estimate.conversations * share)
        if kind_of(judge.spec).measures in ("adaptations", "solutions"):
            return self._adaptation_cost(shown, judge, count)
        if judge.model is None:
            return ResourceEstimate(verdicts=count)
        asks = count * (max(1, self.inputs.manifest.turns) if judge.spec.per == "turn" else 1)
        prompt = usual_prompt(judge_messages(judge.spec, shown.played, shown.example))
        prompt += shown.replies
        folders = self.options.specs.folders
        reply = judge.spec.max_tokens + reasoning_headroom(judge.model, folders, judge.short_name)
        batch = self.options.calls.batch
        price = call_price(judge.model, prompt, reply, folders, judge.short_name, batch=batch)
        return ResourceEstimate(
            verdicts=count,
            tokens=asks * (prompt + reply),
            usd=asks * (price or 0.0),
            unpriced=set() if price is not None else {judge.model},
        )

    def _adaptation_cost(self, shown: Preview, judge: Judge, count: int) -> ResourceEstimate:
        """Return what it takes to adapt to so many self-edits: the steps of the inner loop for each
        seed, then the answers, generated in one batch."""
        policy = self.inputs.manifest.cast[self.inputs.manifest.protocol.policy]
        learner = str(judge.spec.args.get("learner") or "") or None
        size = self._policy_weights(policy, learner)
        tokens = shown.longest_tokens
        if kind_of(judge.spec).measures == "solutions":
            steps, texts, written = MOST_STEPS, 2 * tokens, 0
        else:
            inner = adaptation_settings(judge).inner
            text_count = 1 + math.ceil(shown.replies / LINE_TOKENS)
            steps = count_steps(text_count, inner) * inner.seeds
            texts, written = math.ceil(tokens * steps / max(1, text_count)), inner.max_tokens
        adapting = max(steps * STEP_S, TRAIN_OPERATIONS * (size or 0) * texts / FLOPS)
        seconds = count * (adapting + written * STEP_S / 4)
        return ResourceEstimate(
            verdicts=count,
            hours=seconds / 3600 if size else 0.0,
            unweighed=set() if size else {learner or policy.model},
        )

    def _training_cost(self, planned: PlannedStep, policy: ModelConfig) -> ResourceEstimate:
        """Return what a training takes."""
        recipe = self.findings.recipes.get((planned.step.address, planned.spec.name))
        if recipe is None:  # trained already, or not trainable
            return ResourceEstimate()
        shown = preview_build(
            self.inputs.manifest, self.inputs.loaded.examples, self.options.specs.folders
        )
        manifest = self.inputs.manifest
        rows_per_conversation = max(1, manifest.turns) if recipe.data.unit == "turn" else 1
        logs = [self.findings.cells.get(cell.name) for cell in planned.step.pooled] or [self.inputs]
        logged = sum(count_rows(planned, recipe) for planned in logs if planned is not None)
        rows = min(logged, planned.step.rows or sys.maxsize)
        fit = recipe.fit
        steps = StepCount(
            rows,
            recipe.data.unit,
            fit,
            self.findings.processes.get((planned.step.address, planned.spec.name), 1),
        )
        share = min(
            1.0, steps.total_steps / steps.steps_per_epoch / fit.epochs
        )  # less where steps are limited
        size = self._policy_weights(policy, recipe.model)
        tokens = rows / rows_per_conversation * fit.epochs * share * shown.longest_tokens
        saves = min(fit.save_limit, math.ceil(fit.epochs)) if fit.save == "epoch" else 0
        return ResourceEstimate(
            steps=steps.total_steps,
            disk=CHECKPOINT_BYTES * (size or 0),
            passing=RESUME_BYTES * (size or 0) * saves,
            hours=TRAIN_OPERATIONS * (size or 0) * tokens / FLOPS / 3600,
            unweighed=set() if size else {policy.model},
        )

    def _policy_weights(self, policy: ModelConfig, model: str | None = None) -> int | None:
        reference = model or policy.weights or policy.model
        return count_weights(reference) if reference.partition("/")[0] != "hosted_vllm" else None


def sum_estimates(amounts: Sequence[ResourceEstimate]) -> ResourceEstimate:
    """Return the sum of estimates as a new one, all 0 without any; `passing` is the largest, not a
    sum."""
    combined = ResourceEstimate()
    for amount in amounts:
        combined.add(replace(amount))
    return combined


GB = 1e9


def check_disk(findings: PreflightFindings, root: Path, amount: ResourceEstimate) -> None:
    """Add missing disk space or write access to the findings."""
    folder = next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if amount.disk > free:
        findings.add_missing(
            f"disk: at least {amount.disk / GB:,.1f} GB for runs and checkpoints; {folder} has "
            f"{free / GB:,.1f} GB free; expected more: use another folder with --run DIR, or run "
            "some cells with --only CELL",
            "the experiment",
        )
    if not os.access(folder, os.W_OK):
        findings.add_missing(
            f"{folder}: cannot be written to; use another folder with --run DIR", "the experiment"
        )
