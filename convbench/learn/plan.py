"""Plan a training before there is a run: its memory on a machine's cards, hours and
dollars. Arithmetic alone: no torch, nothing is loaded or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convbench.errors import TrainError, UsageError
from convbench.learn.memory import shard_plan
from convbench.learn.place_recipe import assumed_lengths, measure_rows
from convbench.learn.placement import (
    Attempt,
    Machine,
    RowLengths,
    Training,
    TrainingPlacement,
    this_machine,
)
from convbench.learn.shapes import ModelShape, shape_of
from convbench.learn.steps import StepCount, row_limit
from convbench.learn.train import load_recipe, planned_placement, split_sets
from convbench.models.devices import GB, parse_cards
from convbench.models.weights_path import policy_weights, weights_of
from convbench.options.plan import PlanOptions
from convbench.options.specs import load_plugins
from convbench.options.train import TrainOptions
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import Checkpoint
from convbench.store.run import Run, find_run

FLOPS = 4e14
"""Assumed floating-point operations a second of one accelerator, in training and reading prompts:
two fifths of an H100's peak in bf16."""
CPU_FLOPS = 2e11
"""The same of a CPU of a few cores, in float32."""
UPDATED_ON_HOST = 1e9
"""Assumed weights a second that AdamW updates in host memory."""
BUS_BYTES = 2.5e10
"""Assumed bytes a second between host memory and one card."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a training takes on a machine."""

    recipe: Recipe
    model: str
    shape: ModelShape
    machine: Machine
    lengths: RowLengths
    placement: TrainingPlacement
    hours: float
    """Hours of the training of `lengths.rows` rows."""
    throughput: str
    """Where the hours come from, in words."""


def plan_training(options: PlanOptions) -> TrainingPlan:
    """Return the plan of a recipe on the cards of the options, or on those of this machine.

    Raise UsageError without a model, TrainError for one of unknown shape or a recipe that trains
    nothing, SpecError for unknown or invalid specs.
    """
    load_plugins(options.specs)
    training = TrainOptions(
        options.recipe, launch=options.launch, specs=options.specs, dry_run=True
    )
    recipe = load_recipe(training, split_sets(options.specs.sets)[0])
    run = None if options.run is None else find_run(options.run)
    model = options.model or recipe.model or (policy_weights(run.manifest) if run else None)
    if model is None:
        raise UsageError(
            "plan: no model; expected --model REF (a folder with config.json will do), or --run RUN"
        )
    shape = shape_of(model)
    if shape is None:
        raise TrainError(
            f"model {model!r}: found no config.json of a known form; expected a folder that has "
            "one, or the id of a model on the Hub that can be reached"
        )
    recipe = recipe.model_copy(update={"model": weights_of(model) or model})
    limit = row_limit(recipe)
    if run is not None and options.tokens is None:
        lengths = measure_rows([run], recipe, limit)
    else:
        lengths = assumed_lengths(options.tokens, limit)
    machine = machine_of(options)
    if machine.cards and not machine.card_bytes:
        raise UsageError("plan: the size of this machine's cards is unknown; expected --cards 1x80")
    placement = planned_placement(training, recipe, recipe.model or "", lengths, machine)
    assert placement is not None  # its shape is known
    hours, throughput = _training_hours(placement.best, shape, lengths, run)
    return TrainingPlan(
        recipe,
        model,
        shape,
        machine,
        lengths,
        placement,
        hours,
        throughput,
    )


def machine_of(options: PlanOptions) -> Machine:
    """Return the machine that the options name: `--cards`, `--host`, else what is here."""
    here = this_machine()
    if options.cards is not None:
        count, size = parse_cards(options.cards)
        here = replace(here, cards=count, card_bytes=float(size * GB))
    return here if options.host is None else replace(here, host_bytes=options.host * GB)


def _training_hours(
    attempt: Attempt, shape: ModelShape, lengths: RowLengths, run: Run | None
) -> tuple[float, str]:
    """Return (hours of all trainings of a recipe, where they come from)."""
    recipe = attempt.recipe
    if run is not None and (measured := _measured_rate(run, recipe, attempt.process_count)):
        rate, folder = measured
        rows = lengths.rows * recipe.fit.epochs
        return rows / rate / 3600, f"measured: {rate:.3g} rows a second by {folder.name}"
    seconds = sum(
        _stated_seconds(training, attempt, shape, lengths) for training in attempt.trainings
    )
    flops = FLOPS if attempt.machine.cards else CPU_FLOPS
    stated = f"stated: {flops / 1e12:,.3g} TFLOP/s a {'card' if attempt.machine.cards else 'CPU'}"
    if shard_plan(attempt.launch).host:
        stated += (
            f", {UPDATED_ON_HOST / GB:g} billion weights a second updated in host memory, "
            f"{BUS_BYTES / GB:g} GB a second to a card"
        )
    return seconds / 3600, stated


def _stated_seconds(
    training: Training, attempt: Attempt, shape: ModelShape, lengths: RowLengths
) -> float:
    """Return the seconds of one training."""
    recipe, weights = training.recipe, shape.weight_count
    fit = recipe.fit
    steps = StepCount(lengths.rows, recipe.data.unit, fit, attempt.launch.process_count)
    tokens = lengths.mean * lengths.rows * training.sequences
    share = steps.total_steps / steps.steps_per_epoch
    operations = training_operations(
        training, any(part.reference for part in attempt.parts.values())
    )
    flops = (FLOPS if attempt.machine.cards else CPU_FLOPS) * attempt.launch.process_count
    seconds = operations * weights * tokens * share / flops
    host = shard_plan(attempt.launch).host
    if "optimizer" in host:
        bus_seconds = 2 * 2 * weights / BUS_BYTES / attempt.process_count
        seconds += steps.total_steps * (weights / UPDATED_ON_HOST + bus_seconds)
    if "weights" in host:
        seconds += steps.total_steps * fit.accumulation * 3 * 2 * weights / BUS_BYTES
    return seconds


def training_operations(training: Training, has_reference: bool) -> int:
    """Return the operations of a training a weight and token: 2 to read, 4 more for gradients (2 of
    an adapter), 2 for computing again, 2 for a reference or teacher."""
    recipe = training.recipe
    operations = 4 if recipe.lora is not None and recipe.distil is None else 6
    return operations + 2 * recipe.fit.gradient_checkpointing + 2 * has_reference


def _measured_rate(run: Run, recipe: Recipe, processes: int) -> tuple[float, Path] | None:
    """Return (rows a second, checkpoint) of the last training by name of this recipe and model in a
    run, of rows of the same unit on as many processes; None if there is none."""
    rates: list[tuple[float, Path]] = []
    for folder in sorted(run.checkpoints_folder.glob("*")):
        training = Checkpoint(folder).training
        of_training = [training.get(name) for name in ("recipe", "processes", "unit")]
        same = of_training == [recipe.name, processes, recipe.data.unit]
        base = str(training.get("base"))
        if same and (weights_of(base) or base) == recipe.model:
            rates += [(rate, folder) for rate in _logged_rates(training.get("log") or ())]
    return rates[-1] if rates else None


def _logged_rates(log: Sequence[dict[str, object]]) -> list[float]:
    values = (entry.get("train_samples_per_second") for entry in log)
    return [float(value) for value in values if isinstance(value, int | float) and value > 0]
