"""Estimate what the steps of an experiment ask for: calls, tokens, dollars."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convbench import catalog
from convbench.errors import ConvbenchError
from convbench.experiments.adaptation_amount import AdaptationEstimate
from convbench.experiments.amounts import (
    TRAINED_HERE,
    ResourceEstimate,
    calls_amount,
)
from convbench.experiments.cells import PlannedStep, rounds_options
from convbench.experiments.preflight import CellInputs, PreflightFindings
from convbench.experiments.seal import seal_args
from convbench.judges.ask import judge_messages
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.judges.run import is_for_rewards_only, judge_with_model
from convbench.learn.sweet import SweetArgs
from convbench.options.experiment import ExperimentOptions
from convbench.rollout.manifest import follow_up_manifest
from convbench.rollout.preview import Preview, call_price, preview_build, reasoning_headroom
from convbench.schema import ModelConfig, ProtocolSpec, RunManifest, usual_prompt
from convbench.schema.recipe import Recipe
from convbench.schema.task import Split


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
        if step.kind == "train":
            is_new = self._is_new(step.address)
            return self._training_cost(planned) if is_new else ResourceEstimate()
        manifest, split = self.inputs.manifest, None
        if step.policy:
            if step.address not in self.findings.policies:  # it is missing
                return ResourceEstimate()
            manifest, split = self.findings.policies[step.address], "test"
        elif step.kind == "eval":
            if rounds_options(step, planned.spec, Path(), self.options) is not None:
                return ResourceEstimate()  # its training evaluates each round
            training = (step.required_steps()[-1], planned.spec.name)
            recipe = self.findings.recipes.get(training)
            manifest, split = self._trained_manifest("test", recipe), "test"
        shown, total = self._preview_run(manifest), ResourceEstimate()
        if step.kind != "judge" and self._is_new(step.address):
            total.add(self._build_cost(shown))
        for name in planned.spec.judges if step.kind != "build" else ():
            judge = self._find_judge(planned, name)
            if judge is not None and self._is_new(step.address, name):
                scored = planned.spec.scored_split(name) if step.kind == "judge" else split
                total.add(self._judge_cost(shown, judge, self._count_talks(scored)))
        return total

    def _count_talks(self, split: str | None) -> Mapping[str, int]:
        """Return the number of conversations by split: of a split, or with None of all."""
        counts = Counter[str]()
        for example in self.inputs.loaded.examples:
            counts[example.split] += self.inputs.manifest.samples_of(example.split)
        return counts if split is None else {split: counts[split]}

    def _is_new(self, address: str, judge: str = "") -> bool:
        if (address, judge) in self.seen:
            return False
        self.seen.add((address, judge))
        return True

    def _preview_run(self, manifest: RunManifest) -> Preview:
        """Return the preview of a run on this cell's questions."""
        examples, folders = self.inputs.loaded.examples, self.options.specs.folders
        return preview_build(manifest, examples, folders, batch=self.options.calls.batch)

    def _trained_manifest(self, split: Split, recipe: Recipe | None = None) -> RunManifest:
        """Return the manifest of conversations of a checkpoint about a split's questions; in the
        protocol that its recipe names for evaluation, if any."""
        old = self.inputs.manifest
        protocol = old.protocol
        if recipe is not None and recipe.eval_protocol is not None:
            protocol = catalog.load_spec(
                ProtocolSpec, "protocols", recipe.eval_protocol, specs=self.options.specs.folders
            )
        cast = {name: old.cast.get(name, ModelConfig(model="script")) for name in protocol.speakers}
        limits = old.cast[old.protocol.policy].sampling
        cast[protocol.policy] = ModelConfig(model=TRAINED_HERE, sampling=limits)
        return follow_up_manifest(old, cast, split=split, protocol=protocol)

    def _build_cost(self, shown: Preview) -> ResourceEstimate:
        """Return what it takes to build conversations."""
        count = shown.estimate.conversations
        amount = calls_amount(shown.sizes, count)
        amount.conversations = count
        return amount

    def _judge_cost(
        self, shown: Preview, judge: Judge, counts: Mapping[str, int]
    ) -> ResourceEstimate:
        """Return what it takes to judge so many conversations of each split: one call for each, or
        for each turn if turns are judged, with replies of full length."""
        if is_for_rewards_only(judge):
            counts = {split: n for split, n in counts.items() if split == "train"}
        count = sum(counts.values())
        if kind_of(judge.spec).measures in ("adaptations", "solutions"):
            amount = self._adaptation_estimate(judge).edits_amount(counts)
            amount.verdicts = count
            return amount if count else ResourceEstimate()
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

    def _find_judge(self, planned: PlannedStep, name: str) -> Judge | None:
        """Return a judge that the preflight found, or that only a training asks; None if it cannot
        be resolved."""
        judge = self.findings.judges.get((planned.step.cell.task, name))
        if judge is not None or planned.step.kind != "train":
            return judge
        specs, task = replace(self.options.specs, sets=()), self.inputs.manifest.task
        try:
            return judge_with_model(name, specs, self.options.calls, task=task)
        except ConvbenchError:
            return None

    def _adaptation_estimate(self, judge: Judge) -> AdaptationEstimate:
        return AdaptationEstimate(
            judge,
            self.inputs.manifest.task,
            self.inputs.loaded.examples,
            self.options.specs.folders,
        )

    def _training_cost(self, planned: PlannedStep) -> ResourceEstimate:
        """Return what a training asks for: candidates, and what its rounds log, judge and
        evaluate."""
        recipe = self.findings.recipes.get((planned.step.address, planned.spec.name))
        total = ResourceEstimate()
        if recipe is None:  # trained already, or not trainable
            return total
        if recipe.trainer == "sweet":
            total.add(self._candidates_cost(recipe))
        if recipe.rounds is not None:
            judge = self._find_judge(planned, planned.spec.judges[0])
            total.add(self._rounds_cost(planned, recipe, judge))
        return total

    def _candidates_cost(self, recipe: Recipe) -> ResourceEstimate:
        """Return what the candidates of SWEET take, at every turn of the policy."""
        args, manifest = SweetArgs.from_recipe(recipe), self.inputs.manifest
        logged = manifest.samples_of("train")
        talks = self._count_talks("train")["train"] * min(args.conversations or logged, logged)
        count = max(1, math.ceil(args.share * talks / logged)) * args.candidates
        sizes = self._preview_run(manifest).sizes
        policy = manifest.protocol.policy
        return calls_amount([size for size in sizes if size.speaker == policy], count)

    def _rounds_cost(
        self, planned: PlannedStep, recipe: Recipe, judge: Judge | None
    ) -> ResourceEstimate:
        """Return what a recipe's rounds take besides their trainings: the logs of later rounds, an
        evaluation of each round, and what SEAL measures of many passages."""
        assert recipe.rounds is not None
        total, names = ResourceEstimate(), tuple(dict.fromkeys(planned.spec.judges))
        logged: tuple[Split, tuple[str, ...], int] = ("train", names[:1], recipe.rounds - 1)
        tested: tuple[Split, tuple[str, ...], int] = ("test", names, recipe.rounds)
        for split, judges, times in (logged, tested):
            manifest = self._trained_manifest(split)
            talks = self._preview_run(manifest)
            total.add(self._build_cost(talks), times)
            for each in filter(None, (self._find_judge(planned, name) for name in judges)):
                total.add(self._judge_cost(talks, each, self._count_talks(split)), times)
        if judge is None or recipe.filter is None:
            return total
        measures = kind_of(judge.spec).measures
        if measures in ("adaptations", "solutions"):
            adaptations = self._adaptation_estimate(judge)
            total.add(adaptations.baselines_amount())
            if measures == "adaptations":
                sources = 3 + len(planned.spec.policies)  # passages, first and last edits, others'
                total.add(adaptations.passages_amount(seal_args(recipe), sources))
        return total


def check_folder(findings: PreflightFindings, root: Path) -> None:
    """Add missing write access to the findings."""
    folder = next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())
    if not os.access(folder, os.W_OK):
        findings.add_missing(
            f"{folder}: cannot be written to; use another folder with --run DIR", "the experiment"
        )
