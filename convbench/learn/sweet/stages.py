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

from convbench.learn.job import Job, Means
from convbench.learn.logged import Logged
from convbench.learn.select import Selection, select
from convbench.learn.steps import in_batches
from convbench.learn.sweet import candidates, critic
from convbench.learn.sweet.pairs import (
    CANDIDATES,
    CRITIC,
    RANKED,
    Sweet,
    Trajectories,
    check_base,
    critic_rows,
    hidden_text,
    trajectories,
    whole_weights,
)
from convbench.learn.trainers import start, write_recipe
from convbench.models.devices import inventory
from convbench.models.shape import shape_of
from convbench.schema import text_of
from convbench.schema.recipe import Recipe
from convbench.shards.runner import ShardRunner
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import write_whole
from convbench.views import policy_turns

LOOKED = 8
"""Conversations that a dry run turns into tokens, to find the longest row."""
CRITIC_TRAINER = "sweet_critic"
"""Stage 1's trainer script."""


@dataclass(frozen=True)
class Stages:
    """The stages before the policy's training; they resume where they stopped."""

    job: Job
    means: Means
    settings: Sweet
    selection: Selection
    pairs: Trajectories

    @classmethod
    def of(cls, job: Job, means: Means) -> Stages:
        """Return the stages of a job, checked. Raises TrainError, SpecError if there is nothing to
        learn from or the candidates could not be sampled."""
        settings = Sweet.of(job.recipe.args, job.recipe.name)
        selection = select(job.run, job.recipe.data)
        rule, seed = job.recipe.pairing.ties, job.recipe.fit.seed
        found = cls(job, means, settings, selection, trajectories(selection, settings, rule, seed))
        for item, *_ in candidates.histories(selection, settings):
            hidden_text(item, settings)
        whole_weights(job)
        if candidates.lacking(selection, settings, job.folder / CANDIDATES):
            candidates.ready(job.run, job.recipe, means.calls)
        return found

    def ready(self) -> bool:
        """Return True if the candidates are ranked."""
        return (self.job.folder / RANKED).exists()

    def describe(self) -> Iterator[str]:
        """Yield lines that say how much each stage has to do."""
        turns = len(list(candidates.histories(self.selection, self.settings)))
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
        yield from self.choices()
        yield from self.memory()

    def memory(self) -> Iterator[str]:
        """Yield lines on the critic's peak memory, if the model's shape is known."""
        shape = shape_of(self.job.model)
        if shape is None:
            yield f"peak memory: not known, {self.job.model} is not among the shapes known here"
            return
        recipe, config = self.critic_recipe(), self.means.launch.accelerate or {}
        kind = recipe.fit.precision
        width = 2 if kind == "bf16" or (kind == "auto" and inventory()) else 4
        longest = self._longest()
        scored = critic.scoring(shape, critic.batch_of(longest, critic.BUDGET), width)
        yield f"peak memory of scoring: about {_told(scored)}"
        if recipe.lora is not None:
            yield "peak memory of stage 1: not counted for an adapter"
            return
        deepspeed = config.get("deepspeed_config") or {}
        sharded = "fsdp_config" in config or deepspeed.get("zero_stage") == 3
        rows, both = critic.batch_of(longest, 0), 2 * recipe.fit.batch_size
        rows = critic.Rows(rows.lengths * both, rows.said * both)
        found = critic.training(
            shape,
            rows,
            width=width,
            checkpointing=recipe.fit.gradient_checkpointing,
            shards=self.means.launch.processes if sharded else 1,
        )
        yield f"peak memory of stage 1: about {_told(found)} a process"

    def _longest(self) -> list[tuple[int, int]]:
        """Return (tokens, policy tokens) of the rows of the conversations with the most
        characters."""
        items = {i.conversation_id: i for pair in self.pairs.items for i in pair}

        def size(item: Logged) -> int:
            return sum(len(text_of(turn.content)) for turn in item.conversation.turns)

        protocol, found = self.job.run.manifest.protocol, []
        for item in sorted(items.values(), key=size)[-LOOKED:]:
            rows = critic_rows(protocol, item, self.job.chat, self.settings)
            found += [(len(row.ids), sum(mark >= 0 for mark in row.turns)) for row in rows]
        return found

    def choices(self) -> Iterator[str]:
        """Yield lines on the settings in which the papers and released programs differ."""
        s, launch = self.settings, self.means.launch
        mean = {"turn": "mean over each turn's tokens", "trajectory": "mean over all tokens"}
        how = mean["turn" if s.normalize is True else str(s.normalize)] if s.normalize else "sums"
        yield f"advantage: {how}; reference {'with' if s.informed_reference else 'without'} hidden"
        yield f"NLL: {s.critic_nll:g} in stage 1, {s.nll:g} in stage 2"
        yield f"candidates: on {s.share:.0%} of the conversations, temperature {s.temperature:g}"
        for name, recipe in (("1", self.critic_recipe()), ("2", self.job.recipe)):
            fit = recipe.fit
            rows = fit.batch_size * fit.accumulation * launch.processes
            yield (
                f"stage {name} fit: {rows} pairs per step ({fit.batch_size} x {fit.accumulation} x "
                f"{launch.processes} process(es)), rate {fit.learning_rate:g} falling to "
                f"{fit.floor:.0%}, Adam {fit.betas[0]:g}/{fit.betas[1]:g}, {fit.epochs:g} epochs"
            )

    def critic_recipe(self) -> Recipe:
        """Return stage 1's recipe with the accumulation for the launch's processes."""
        recipe = critic_recipe(self.job.recipe, self.settings)
        return in_batches(recipe, self.means.launch.processes)

    def do(self) -> list[str]:
        """Train the critic, sample the candidates, rank them; return no notes."""
        job = self.job
        write_recipe(job)
        critic = Job(self.critic_recipe(), job.folder / CRITIC)
        if not Checkpoint(critic.folder).finished:
            start(critic, self.means)
        check_base(job)
        file = job.folder / CANDIDATES
        candidates.sample(
            job.run,
            job.recipe,
            self.selection,
            self.settings,
            file,
            self.means.calls,
            ShardRunner(self.means.spread, self.means.calls, self.means.specs),
        )
        rank(job, self.selection, self.settings)
        return []

    def told(self) -> Iterator[tuple[str, str]]:
        """Yield (label, line) on the critic's scores of held-out conversations."""
        for number, line in enumerate(credit(self.job.folder / CRITIC, self.selection)):
            yield "critic" if number == 0 else "", line


def _told(peak: critic.Peak) -> str:
    """Return a peak as text, in GB."""
    parts = ("weights", "training", "inside", "logits")
    of = ", ".join(f"{name} {getattr(peak, name) / 1e9:.2f}" for name in parts)
    return f"{peak.total / 1e9:.2f} GB ({of})"


def credit(critic: Path, selection: Selection) -> Iterator[str]:
    """Yield lines with the critic's pair accuracy on held-out tasks, then the advantage of every
    turn of three of their conversations."""
    found = Checkpoint(critic).training["held_out"]
    if not found["pairs"]:
        yield "no pair of held-out tasks; args.held_out is their share"
        return
    yield f"right on {found['accuracy']:.0%} of {found['pairs']} pairs of held-out tasks"
    by_id = {item.conversation_id: item for item in selection.logged}
    for name, values in found["advantages"].items():
        item = by_id[name]
        yield f"{name}, reward {item.reward:g}"
        turns = policy_turns(selection.run.manifest.protocol, item.conversation)
        for turn, value in zip(turns, values, strict=False):
            said = " ".join(text_of(item.conversation.turns[turn].content).split())
            yield f"  {value:+8.3f}  {textwrap.shorten(said, 70, placeholder=' …')}"


def critic_recipe(recipe: Recipe, settings: Sweet) -> Recipe:
    """Return stage 1's recipe: the same, with the critic's trainer and its own `fit` values."""
    fit = recipe.fit.model_validate({**recipe.fit.model_dump(), **settings.critic})
    name = f"{recipe.name}-critic"
    return recipe.model_copy(update={"name": name, "trainer": CRITIC_TRAINER, "fit": fit})


def rank(job: Job, selection: Selection, settings: Sweet) -> None:
    """Write `ranked.jsonl`, every candidate with the critic's advantage, unless it exists."""
    file = job.folder / RANKED
    if file.exists():
        return
    from convbench.learn.sweet.ranking import candidate_advantages

    rows = list(candidates.rows(job.folder / CANDIDATES))
    by_id = {item.conversation_id: item for item in selection.logged}
    known = [row for row in rows if row["conversation_id"] in by_id]
    found = candidate_advantages(job, job.folder / CRITIC, by_id, known, settings)
    lines = [
        json.dumps({**row, "advantage": value}) for row, value in zip(known, found, strict=True)
    ]
    write_whole(file, ("\n".join(lines) + "\n").encode())
