"""SWEET's stages before its policy is trained: the critic, candidates at each turn, their ranking.

Every stage writes its result into the checkpoint's folder (`critic/`, `candidates.jsonl`,
`ranked.jsonl`), and a stage whose result exists is not done again.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from convbench.learn.job import Job, TrainContext
from convbench.learn.launch import (
    count_accelerators,
    run_command,
    trainer_devices,
    worker_environment,
)
from convbench.learn.log import LoggedConversation
from convbench.learn.memory import (
    MemoryParts,
    Precision,
    scoring_memory,
    shard_plan,
    step_memory,
)
from convbench.learn.run_trainer import run_trainer, write_recipe
from convbench.learn.select import Selection, select
from convbench.learn.shapes import shape_of
from convbench.learn.steps import with_accumulation
from convbench.learn.sweet import candidates
from convbench.learn.sweet.pairs import (
    CANDIDATES,
    CRITIC,
    RANKED,
    SweetArgs,
    TrajectoryPairs,
    check_base,
    check_unquantized,
    critic_recipe,
    critic_rows,
    hidden_text,
    trajectory_pairs,
)
from convbench.models.devices import list_devices
from convbench.schema import text_of
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import Checkpoint
from convbench.views import policy_turns

PREVIEW_CONVERSATIONS = 8
"""Conversations that a dry run turns into tokens, to find the longest row."""


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
        from convbench.learn.sweet import critic  # imports torch

        recipe, shards = self.critic_recipe(), shard_plan(self.context.launch)
        kind, accelerated = recipe.fit.precision, bool(list_devices())
        bf16 = kind == "bf16" or (kind == "auto" and accelerated)
        precision: Precision = "bf16" if bf16 else "fp32"
        longest = self._longest_rows()
        scoring_peak = scoring_memory(
            shape,
            critic.scoring_batch(longest, critic.BUDGET),
            precision=precision,
            trained=recipe.lora is None,
        )
        yield f"peak memory of scoring: about {_format_peak(scoring_peak)}"
        longest_row = critic.scoring_batch(longest, 0)
        training_peak = step_memory(
            "critic",
            shape,
            recipe,
            replace(longest_row, rows=longest_row.rows * 2 * recipe.fit.batch_size),
            precision=precision,
            shards=shards,
            device="cuda" if accelerated else "cpu",
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
        )
        if not self.is_ready():
            self._rank_candidates()
        return []

    def _rank_candidates(self) -> None:
        """Rank the candidates: in this process, or if a device is used or set in one of its own,
        whose end returns the device's memory to what runs next."""
        calls = self.context.calls
        gpus, names = count_accelerators(calls), trainer_devices(calls)
        if names is None and not gpus:
            from convbench.learn.sweet.ranking import rank_candidates

            rank_candidates(self.job, self.selection, self.settings)
            return
        one_process = self.context.launch.model_copy(update={"accelerate": None})
        program = [sys.executable, "-m", "convbench.learn.sweet.ranking", str(self.job.folder)]
        env, log = worker_environment(one_process, gpus, names), self.job.folder / "rank.log"
        run_command(program, env, log, self.job.recipe.fit, self.context.locks)

    def result_lines(self) -> Iterator[tuple[str, str]]:
        """Yield (label, line) on the critic's scores of held-out conversations; the label is
        `critic` for the first line, else ""."""
        for number, line in enumerate(credit_lines(self.job.folder / CRITIC, self.selection)):
            yield "critic" if number == 0 else "", line


def _format_peak(peak: MemoryParts) -> str:
    """Return a peak as text, in GB."""
    uses = ", ".join(
        f"{name} {value / 1e9:.2f}"
        for name, value in vars(peak).items()
        if value and name != "host"
    )
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
