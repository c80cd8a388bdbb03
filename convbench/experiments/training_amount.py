"""Estimate what a training takes, with the trainings and candidates before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from convbench.experiments.amounts import READ_OPERATIONS, ResourceEstimate, calls_amount
from convbench.learn.launch import load_trainer, locate_trainer
from convbench.learn.placement import Training, trainings_of
from convbench.learn.plan import FLOPS, training_operations
from convbench.learn.steps import LogSize, StepCount
from convbench.rollout.preview import CallEstimate
from convbench.schema.recipe import Recipe

CHECKPOINT_BYTES, RESUME_BYTES = 2, 14
"""Bytes a weight of a checkpoint (bf16), and of one to resume from (with AdamW's two moments and
its copy of the weights)."""


def training_amount(
    recipe: Recipe,
    log: LogSize,
    replies: Sequence[CallEstimate],
    longest: int,
    weights: int | None,
    processes: int = 1,
) -> ResourceEstimate:
    """Return what a recipe's trainings on a log take, one after the other, with the candidates that
    it samples and ranks. `replies` are the policy's calls in a conversation, `longest` is a
    conversation in tokens, `weights` those of the policy."""
    trainer = load_trainer(locate_trainer(recipe.trainer or ""))
    total = ResourceEstimate()
    for training in trainings_of(recipe, trainer):
        row = longest
        if training.recipe.data.unit == "turn" and replies:
            row = math.ceil(sum(call.prompt + call.reply for call in replies) / len(replies))
        total.add(_fitting_amount(training, log, row, weights, processes))
    if hasattr(trainer, "candidates_per_reply"):
        count = trainer.candidates_per_reply(recipe, log)
        here = {call.speaker: weights for call in replies}
        total.add(calls_amount(replies, count, here))
        ranked = count * sum(call.prompt + call.reply for call in replies)
        total.hours += 2 * READ_OPERATIONS * (weights or 0) * ranked / FLOPS / 3600  # two models
    return total


def _fitting_amount(
    training: Training, log: LogSize, row: int, weights: int | None, processes: int
) -> ResourceEstimate:
    """Return what one training takes, of rows of at most `row` tokens."""
    recipe, fit, size = training.recipe, training.recipe.fit, weights or 0
    trainer = load_trainer(locate_trainer(recipe.trainer or ""))
    most_rows = getattr(trainer, "most_rows", lambda recipe, log: log.count_rows(recipe))
    rows = most_rows(recipe, log)
    steps = StepCount(rows, recipe.data.unit, fit, processes)
    passes = steps.total_steps / steps.steps_per_epoch
    operations = passes * training_operations(
        training, training.step in ("preference", "distillation")
    )
    if training.step == "critic":  # the reference reads every row once
        operations += READ_OPERATIONS
    tokens = rows * training.sequences * row
    saves = min(fit.save_limit, math.ceil(fit.epochs)) if fit.save == "epoch" else 0
    return ResourceEstimate(
        steps=steps.total_steps,
        disk=CHECKPOINT_BYTES * size,
        passing=RESUME_BYTES * size * saves,
        hours=operations * size * tokens / FLOPS / 3600,
    )
