"""SWEET's stages before its policy is trained: the critic, candidates at each turn, their ranking.

Every stage writes its result into the checkpoint's folder (`critic/`, `candidates.jsonl`,
`ranked.jsonl`), and a stage whose result exists is not done again.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convbench.learn.job import Job, TrainContext
from convbench.learn.log import LoggedConversation
from convbench.learn.run_trainer import run_trainer, write_recipe
from convbench.learn.select import Selection, select
from convbench.learn.steps import with_accumulation
from convbench.learn.sweet import candidates, critic
from convbench.learn.sweet.pairs import (
    CANDIDATES,
    CRITIC,
    RANKED,
    SweetArgs,
    TrajectoryPairs,
    check_base,
    check_unquantized,
    critic_rows,
    hidden_text,
    parse_settings,
    trajectory_pairs,
)
from convbench.models.devices import list_devices
from convbench.models.weights_path import shape_of
from convbench.schema import text_of
from convbench.schema.recipe import Fit, Recipe
from convbench.shards.runner import ShardRunner
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import write_atomic
from convbench.views import policy_turns

PREVIEW_CONVERSATIONS = 8
"""Conversations that a dry run turns into tokens, to find the longest row."""
CRITIC_TRAINER = "sweet_critic"
"""Stage 1's trainer script."""


@dataclass(frozen=True)
class SweetPreparation:
    """The stages before the policy's training; they resume where they stopped."""

    job: Job
    context: TrainContext
    settings: SweetArgs
    selection: Selection
    pairs: TrajectoryPairs

    @classmethod
    def from_job(cls, job: Job, context: TrainContext) -> SweetPreparation:
        """Return the stages of a job, checked. Raises TrainError, SpecError if there is nothing to
        learn from or the candidates could not be sampled."""
        settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
        selection = select(job.run, job.recipe.data)
        rule, seed = job.recipe.pairing.ties, job.recipe.fit.seed
        stages = cls(
            job, context, settings, selection, trajectory_pairs(selection, settings, rule, seed)
        )
        for item, *_ in candidates.iter_histories(selection, settings):
            hidden_text(item, settings)
        check_unquantized(job)
        if candidates.missing_candidates(selection, settings, job.folder / CANDIDATES):
            candidates.check_policy(job.run, job.recipe, context.calls)
        return stages

    def is_ready(self) -> bool:
        """Return True if the candidates are ranked."""
        return (self.job.folder / RANKED).exists()

    def describe_work(self) -> Iterator[str]:
        """Yield lines that say how much each stage has to do."""
        turns = len(list(candidates.iter_histories(self.selection, self.settings)))
        yield f"{len(self.selection.logged)} conversations, judge {self.selection.judge}"
        yield (
            f"stage 1: {len(self.pairs.items)} pairs of trajectories, {len(self.pairs.held)} held "
            "out"
        )
        yield (
            f"stage 2: {turns} replies, {self.settings.candidates} candidates each, "
            f"{turns * self.settings.pairs} pairs"
        )
        if self.pairs.ties is not None:
            yield from self.pairs.ties.describe()
        yield from self.setting_lines()
        yield from self.memory_lines()

    def memory_lines(self) -> Iterator[str]:
        """Yield lines on the critic's peak memory in GB, of scoring and of stage 1; one line if the
        model's shape is unknown."""
        shape = shape_of(self.job.model)
        if shape is None:
            yield f"peak memory: unknown, {self.job.model} has no known shape"
            return
        recipe, config = self.critic_recipe(), self.context.launch.accelerate or {}
        kind = recipe.fit.precision
        width = 2 if kind == "bf16" or (kind == "auto" and list_devices()) else 4
        longest = self._longest_rows()
        scoring_peak = critic.scoring_memory(
            shape, critic.scoring_batch(longest, critic.BUDGET), width
        )
        yield f"peak memory of scoring: about {_format_peak(scoring_peak)}"
        if recipe.lora is not None:
            yield "peak memory of stage 1: not counted for an adapter"
            return
        deepspeed = config.get("deepspeed_config") or {}
        sharded = "fsdp_config" in config or deepspeed.get("zero_stage") == 3
        rows, both = critic.scoring_batch(longest, 0), 2 * recipe.fit.batch_size
        rows = critic.BatchShape(rows.lengths * both, rows.policy_tokens * both)
        training_peak = critic.training_memory(
            shape,
            rows,
            width=width,
            checkpointing=recipe.fit.gradient_checkpointing,
            shards=self.context.launch.process_count if sharded else 1,
        )
        yield f"peak memory of stage 1: about {_format_peak(training_peak)} a process"

    def _longest_rows(self) -> list[tuple[int, int]]:
        """Return (tokens, policy tokens) of the rows of the conversations with the most
        characters."""
        items = {i.conversation_id: i for pair in self.pairs.items for i in pair}

        def text_length(item: LoggedConversation) -> int:
            return sum(len(text_of(turn.content)) for turn in item.conversation.turns)

        protocol, lengths = self.job.run.manifest.protocol, []
        for item in sorted(items.values(), key=text_length)[-PREVIEW_CONVERSATIONS:]:
            rows = critic_rows(protocol, item, self.job.chat, self.settings)
            lengths += [(len(row.ids), sum(mark >= 0 for mark in row.turns)) for row in rows]
        return lengths

    def setting_lines(self) -> Iterator[str]:
        """Yield lines on the settings in which the papers and released programs differ."""
        settings, launch = self.settings, self.context.launch
        mean = {"turn": "mean over each turn's tokens", "trajectory": "mean over all tokens"}
        normalisation = (
            mean["turn" if settings.normalize is True else str(settings.normalize)]
            if settings.normalize
            else "sums"
        )
        hidden = "with" if settings.informed_reference else "without"
        yield f"advantage: {normalisation}; reference {hidden} hidden"
        yield f"NLL: {settings.critic_nll:g} in stage 1, {settings.nll:g} in stage 2"
        yield (
            f"candidates: on {settings.share:.0%} of the conversations, "
            f"temperature {settings.temperature:g}"
        )
        for name, recipe in (("1", self.critic_recipe()), ("2", self.job.recipe)):
            fit = recipe.fit
            rows = fit.batch_size * fit.accumulation * launch.process_count
            yield (
                f"stage {name} fit: {rows} pairs per step ({fit.batch_size} x {fit.accumulation} x "
                f"{launch.process_count} process(es)), rate {fit.learning_rate:g} falling to "
                f"{fit.floor:.0%}, Adam {fit.betas[0]:g}/{fit.betas[1]:g}, {fit.epochs:g} epochs"
            )

    def critic_recipe(self) -> Recipe:
        """Return stage 1's recipe with the accumulation for the launch's processes."""
        recipe = critic_recipe(self.job.recipe, self.settings)
        return with_accumulation(recipe, self.context.launch.process_count)

    def do_work(self) -> list[str]:
        """Train the critic, sample the candidates and rank them, as far as that is not done; return
        an empty list.

        Results are written to the job's folder. Raise ConvbenchError if a stage fails.
        """
        job = self.job
        write_recipe(job)
        critic = Job(self.critic_recipe(), job.folder / CRITIC)
        if not Checkpoint(critic.folder).is_finished:
            run_trainer(critic, self.context)
        check_base(job)
        file = job.folder / CANDIDATES
        candidates.sample_candidates(
            job.run,
            job.recipe,
            self.selection,
            self.settings,
            file,
            self.context.calls,
            ShardRunner(self.context.spread, self.context.calls, self.context.specs),
        )
        rank_candidates(job, self.selection, self.settings)
        return []

    def result_lines(self) -> Iterator[tuple[str, str]]:
        """Yield (label, line) on the critic's scores of held-out conversations; the label is
        `critic` for the first line, else ""."""
        for number, line in enumerate(credit_lines(self.job.folder / CRITIC, self.selection)):
            yield "critic" if number == 0 else "", line


def _format_peak(peak: critic.PeakMemory) -> str:
    """Return a peak as text, in GB."""
    parts = ("weights", "training", "inside", "logits")
    uses = ", ".join(f"{name} {getattr(peak, name) / 1e9:.2f}" for name in parts)
    return f"{peak.total / 1e9:.2f} GB ({uses})"


def credit_lines(critic: Path, selection: Selection) -> Iterator[str]:
    """Yield lines with the critic's pair accuracy on held-out tasks, then the advantage of every
    turn of three of their conversations."""
    held_out = Checkpoint(critic).training["held_out"]
    if not held_out["pairs"]:
        yield "no pair of held-out tasks; args.held_out is their share"
        return
    yield f"right on {held_out['accuracy']:.0%} of {held_out['pairs']} pairs of held-out tasks"
    by_id = {item.conversation_id: item for item in selection.logged}
    for name, values in held_out["advantages"].items():
        item = by_id[name]
        yield f"{name}, reward {item.reward:g}"
        turns = policy_turns(selection.run.manifest.protocol, item.conversation)
        for turn, value in zip(turns, values, strict=False):
            text = " ".join(text_of(item.conversation.turns[turn].content).split())
            yield f"  {value:+8.3f}  {textwrap.shorten(text, 70, placeholder=' …')}"


def critic_recipe(recipe: Recipe, settings: SweetArgs) -> Recipe:
    """Return stage 1's recipe: the same, named NAME-critic, with the critic's trainer and its own
    `fit` values.

    Raise TrainError for invalid ones.
    """
    values = {**recipe.fit.model_dump(), **settings.critic}
    fit = parse_settings(Fit, values, f"recipe {recipe.name!r}: args.critic")
    name = f"{recipe.name}-critic"
    return recipe.model_copy(update={"name": name, "trainer": CRITIC_TRAINER, "fit": fit})


def rank_candidates(job: Job, selection: Selection, settings: SweetArgs) -> None:
    """Write `ranked.jsonl`, every candidate of the selection with the critic's `advantage`, unless
    it exists."""
    file = job.folder / RANKED
    if file.exists():
        return
    from convbench.learn.sweet.ranking import candidate_advantages

    rows = list(candidates.read_candidates(job.folder / CANDIDATES))
    by_id = {item.conversation_id: item for item in selection.logged}
    known = [row for row in rows if row["conversation_id"] in by_id]
    advantages = candidate_advantages(job, job.folder / CRITIC, by_id, known, settings)
    lines = [
        json.dumps({**row, "advantage": value})
        for row, value in zip(known, advantages, strict=True)
    ]
    write_atomic(file, ("\n".join(lines) + "\n").encode())
