"""Place a training on a machine's cards so that it fits, and say why; arithmetic alone.

What the recipe or the user says comes first. Then, in this order, until it fits: fewer rows at once
with more accumulation (the same step), checkpointed activations, more of the cards, ZeRO-2 and
ZeRO-3 over all of them, and at last the optimiser and the weights in host memory, never on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from convbench import catalog
from convbench.learn.launch import load_trainer, locate_trainer
from convbench.learn.memory import (
    HALF,
    Device,
    Kind,
    MemoryParts,
    Precision,
    StepRows,
    layer_weights,
    scoring_memory,
    shard_plan,
    step_memory,
)
from convbench.learn.shapes import ModelShape
from convbench.learn.steps import with_accumulation
from convbench.models.devices import GB, host_memory, list_devices
from convbench.schema.recipe import LaunchSpec, Recipe

FULL_BYTES = 8
"""Least bytes a weight of training all of them: in bf16 with gradients and AdamW's two moments."""
QUANTIZED_BYTES = 0.5 + 4 / 64
"""Bytes a weight of QLoRA's base: 4 bits, and a float32 scale for each block of 64."""
CONTEXT_BYTES = 1e9
"""Bytes of a card that CUDA's own context takes."""
PROCESS_BYTES = 3e9
"""Assumed bytes of host memory of a trainer's process itself: libraries, rows, pinned buffers."""
DEEPSPEED, FSDP = "deepspeed_config", "fsdp_config"
TO_HOST = {"offload_optimizer_device": "cpu"}
NOTHING_TO_HOST = {"offload_optimizer_device": "none", "offload_param_device": "none"}


@dataclass(frozen=True)
class Machine:
    """Cards of one machine, and its own memory."""

    cards: int
    card_bytes: float
    """Bytes of each card, of the smallest if they differ; 0 if unknown, or without cards."""
    host_bytes: float

    @property
    def training_device(self) -> Device:
        """What trains: the cards, or the CPU without any."""
        return "cuda" if self.cards else "cpu"

    def in_words(self) -> str:
        """Return cards and host memory in words."""
        cards = f"{self.cards} x {format_gb(self.card_bytes)} GB" if self.cards else "no card"
        return f"{cards}, {format_gb(self.host_bytes)} GB of host memory"


def this_machine(names: Sequence[str] | None = None) -> Machine:
    """Return this machine with the named cards (None: all); `card_bytes` is 0 if it is unknown."""
    devices = [device for device in list_devices() if names is None or device.name in names]
    smallest = min((device.memory for device in devices), default=0)
    return Machine(len(devices), float(smallest), float(host_memory()))


@dataclass(frozen=True)
class RowLengths:
    """Lengths of a training's rows in tokens, and their number."""

    longest: int
    labelled: int
    """Most tokens of a row that have a loss."""
    mean: float
    rows: int
    source: str
    """Where they come from, in words."""


@dataclass(frozen=True)
class Pinned:
    """What the user set, which stays."""

    launch: bool = False
    processes: bool = False
    offload: bool = False
    rows: bool = False
    """Rows at once, or their accumulation."""
    checkpointing: bool = False


def pinned_settings(
    launch: str | None, recipe_sets: Mapping[str, Any], launch_sets: Mapping[str, Any]
) -> Pinned:
    """Return what a user pinned: a named launch, and settings as `split_sets` returns them."""
    return Pinned(
        launch=launch is not None or bool(launch_sets),
        processes="accelerate.num_processes" in launch_sets,
        offload=any("offload" in key for key in launch_sets),
        rows=bool({"fit.batch_size", "fit.accumulation"} & recipe_sets.keys()),
        checkpointing="fit.gradient_checkpointing" in recipe_sets,
    )


@dataclass(frozen=True)
class Training:
    """One training of a recipe: SWEET's has two, one after the other."""

    name: str
    step: Kind
    recipe: Recipe
    sequences: int
    """Sequences in the model of one row: two of a pair."""

    def step_rows(self, lengths: RowLengths) -> StepRows:
        """Return what is in the model at once."""
        rows = self.recipe.fit.batch_size * self.sequences
        return StepRows(rows, lengths.longest, min(lengths.labelled, lengths.longest))


def trainings_of(recipe: Recipe, trainer: ModuleType) -> list[Training]:
    """Return the trainings that a recipe does, in order.

    Its trainer's script says `STEP`, what a step computes (weighted rows without it), `SEQUENCES`
    of a row (1 without it), and in `earlier_recipes` the recipes of trainings before its own.
    """
    earlier: Mapping[str, Recipe] = getattr(trainer, "earlier_recipes", lambda recipe: {})(recipe)
    trainings: list[Training] = []
    for name, each in earlier.items():
        module = load_trainer(locate_trainer(each.trainer or ""))
        trainings += [replace(part, name=name) for part in trainings_of(each, module)]
    step: Kind = getattr(trainer, "STEP", "weighted")
    return [*trainings, Training(recipe.name, step, recipe, getattr(trainer, "SEQUENCES", 1))]


@dataclass(frozen=True)
class Attempt:
    """One way to place a training, with what it takes."""

    recipe: Recipe
    launch: LaunchSpec
    machine: Machine
    trainings: Sequence[Training]
    parts: Mapping[str, MemoryParts]
    """Bytes of a process, by training."""

    @property
    def process_count(self) -> int:
        """Processes on one machine."""
        return self.launch.process_count // machines_of(self.launch)

    @property
    def context_bytes(self) -> float:
        """Bytes that CUDA takes on a card; on a CPU those of the process itself."""
        return CONTEXT_BYTES if self.machine.cards else PROCESS_BYTES

    @cached_property
    def card_bytes(self) -> float:
        """Bytes of a card at the largest peak; on a CPU of a process."""
        return max(part.total for part in self.parts.values()) + self.context_bytes

    @cached_property
    def host_bytes(self) -> float:
        """Bytes of host memory of all processes of one machine."""
        if not self.machine.cards:
            return self.card_bytes * self.process_count
        return self.process_count * (max(p.host for p in self.parts.values()) + PROCESS_BYTES)

    @property
    def missing_bytes(self) -> tuple[float, float]:
        """Bytes that are missing, of each card and of the host."""
        host = max(0.0, self.host_bytes - self.machine.host_bytes)
        card = self.card_bytes - self.machine.card_bytes if self.machine.cards else 0.0
        return max(0.0, card), host

    @property
    def does_fit(self) -> bool:
        """Whether nothing is missing."""
        return not any(self.missing_bytes)

    def in_words(self) -> str:
        """Return how it is placed and what it takes, in words."""
        fit, launch, machine = self.recipe.fit, self.launch, self.machine
        count = f"{self.process_count} card{'s' if self.process_count > 1 else ''}"
        words = [f"{launch.name} on {count if machine.cards else 'the CPU'}"]
        offloaded = [OFFLOADED[name] for name in OFFLOADED if name in shard_plan(launch).host]
        if offloaded:
            words.append(f"{' and '.join(offloaded)} in host memory")
        words.append(f"{fit.batch_size} x {fit.accumulation} rows a process")
        if fit.gradient_checkpointing:
            words.append("checkpointed")
        host = f"{format_gb(self.host_bytes)} GB of {format_gb(machine.host_bytes)} of host memory"
        card = f"{format_gb(self.card_bytes)} GB of {format_gb(machine.card_bytes)} a card, "
        return f"{', '.join(words)}: {card if machine.cards else ''}{host}"


OFFLOADED = {"optimizer": "optimiser", "weights": "weights"}
"""Words for the parts that a launch keeps in host memory."""


@dataclass(frozen=True)
class TrainingPlacement:
    """How a training is placed, and the ways that were looked at before."""

    first: Attempt
    """As the recipe or the user says."""
    best: Attempt
    """The first way that fits; if none does, the one that lacks least."""
    tried: tuple[Attempt, ...]
    """Of each launch that does not fit the way that lacks least, in order."""
    least_bytes: float
    """Bytes that are certain, whatever the launch."""

    @property
    def does_fit(self) -> bool:
        """Whether it fits."""
        return self.best.does_fit

    def reason_lines(self) -> list[str]:
        """Return a line for each way that does not fit, as the recipe or the user says first."""
        same = bool(self.tried) and self.tried[0].launch == self.first.launch
        attempts = self.tried if same else (self.first, *self.tried)
        return [
            f"does not fit: {attempt.in_words()}{_undivided_remark(attempt)}"
            for attempt in attempts
            if attempt is not self.best
        ]

    def summary_line(self) -> str:
        """Return one line: how it is placed, or what is missing."""
        if self.does_fit:
            return self.best.in_words()
        missing = " and ".join(
            f"{format_gb(max(size, GB / 10))} GB {where}"
            for size, where in zip(
                self.best.missing_bytes, ("a card", "of host memory"), strict=True
            )
            if size
        )
        return f"nothing fits; the least is {self.best.in_words()}; missing: {missing}"

    def refusal_line(self) -> str | None:
        """Return why this training cannot start, or None; on a CPU only what is certain counts."""
        if self.best.machine.cards:
            return None if self.does_fit else self.summary_line()
        least, host = self.least_bytes, self.best.machine.host_bytes
        if least <= host:
            return None
        return f"training takes at least {format_gb(least)} GB of memory, found {format_gb(host)}"


def _undivided_remark(attempt: Attempt) -> str:
    """Return a remark on a launch whose sharding does nothing, as there is one process."""
    sharded = attempt.launch.accelerate is not None and shard_plan(attempt.launch).engine != "ddp"
    return " (one process divides nothing)" if sharded and attempt.process_count == 1 else ""


def place_training(
    recipe: Recipe,
    launch: LaunchSpec,
    shape: ModelShape,
    lengths: RowLengths,
    machine: Machine,
    *,
    pinned: Pinned = Pinned(),
    specs: Sequence[Path] = (),
) -> TrainingPlacement:
    """Return the placement of a recipe's trainings of a model; `launch` is what the recipe or the
    user says. Without cards that is kept as it is.

    Processes that cannot share `fit.batch` take the nearest number of rows that they can. Raise
    TrainError if it is no multiple of `fit.batch_size`.
    """
    launch = _on_cards(launch, machine.cards)
    trainer = load_trainer(locate_trainer(recipe.trainer or ""))
    step_rows = recipe.fit.batch or (
        recipe.fit.batch_size * recipe.fit.accumulation * launch.process_count
    )
    adapted = recipe.lora is not None and recipe.distil is None
    least = FULL_BYTES if not adapted else QUANTIZED_BYTES if _is_quantized(recipe) else HALF
    least *= shape.weight_count / machines_of(launch)
    stays = replace(pinned, rows=pinned.rows or getattr(trainer, "ROWS_STAY", False))
    first: Attempt | None = None
    tried: list[Attempt] = []
    for candidate in _iter_launches(recipe, launch, machine, pinned, step_rows, specs):
        attempts: list[Attempt] = []
        for way in _iter_recipes(recipe, candidate.process_count, step_rows, stays, machine):
            trainings = trainings_of(way, trainer)
            parts = _all_parts(trainings, candidate, shape, lengths, machine)
            attempts.append(attempt := Attempt(way, candidate, machine, trainings, parts))
            first = first or attempt
            if attempt.does_fit:
                return TrainingPlacement(first, attempt, tuple(tried), least)
        if attempts:
            tried.append(min(attempts, key=lambda attempt: sum(attempt.missing_bytes)))
    if first is None:  # the processes cannot share these rows: the nearest number that they can
        recipe = with_accumulation(recipe, launch.process_count, keep_size=stays.rows)
        return place_training(recipe, launch, shape, lengths, machine, pinned=pinned, specs=specs)
    return TrainingPlacement(
        first, min(tried, key=lambda a: sum(a.missing_bytes)), tuple(tried), least
    )


def _all_parts(
    trainings: Sequence[Training],
    launch: LaunchSpec,
    shape: ModelShape,
    lengths: RowLengths,
    machine: Machine,
) -> dict[str, MemoryParts]:
    """Return what each training takes, and the ranking by a critic, which scores one row after the
    other beside its reference on one card."""
    setting = trainings[-1].recipe.fit.precision
    is_half = setting == "bf16" or (setting == "auto" and machine.cards > 0)
    width: Precision = "bf16" if is_half else "fp32"
    parts: dict[str, MemoryParts] = {}
    for training in trainings:
        distil = training.recipe.distil
        layers = distil.student_layers if distil is not None else None
        memory = step_memory(
            training.step,
            replace(shape, layers=min(layers or shape.layers, shape.layers)),
            training.recipe,
            training.step_rows(lengths),
            precision=width,
            shards=shard_plan(launch),
            device=machine.training_device,
            reference=shape,
        )
        if _is_quantized(training.recipe):
            saved = (HALF - QUANTIZED_BYTES) * layer_weights(shape)
            memory = replace(memory, weights=memory.weights - saved)
        parts[training.name] = memory
    if any(training.step == "critic" for training in trainings[:-1]):
        row = StepRows(1, lengths.longest, min(lengths.labelled, lengths.longest))
        scoring = scoring_memory(shape, row, precision=width)
        parts["ranking"] = replace(scoring, reference=scoring.weights)
    return parts


def _is_quantized(recipe: Recipe) -> bool:
    """Return True if an adapter is trained on a base in 4 bits."""
    return recipe.lora is not None and recipe.lora.quantize == "4bit" and recipe.distil is None


def _iter_recipes(
    recipe: Recipe, processes: int, step_rows: int, pinned: Pinned, machine: Machine
) -> Iterator[Recipe]:
    """Yield the recipe as it is, then with fewer rows at once, then the same with checkpointed
    activations; every step has the same rows. On cards, yields nothing if the processes cannot
    share them."""
    if not machine.cards:
        yield with_accumulation(recipe, processes, keep_size=pinned.rows)
        return
    fit = recipe.fit
    sizes = [
        size
        for size in range(fit.batch_size, 0, -1)
        if step_rows % (size * processes) == 0 and (size == fit.batch_size or not pinned.rows)
    ]
    checkpointed = [fit.gradient_checkpointing]
    if not (fit.gradient_checkpointing or pinned.checkpointing):
        checkpointed.append(True)
    for checkpointing in checkpointed:
        for size in sizes:
            values = {
                "batch_size": size,
                "accumulation": step_rows // (size * processes),
                "gradient_checkpointing": checkpointing,
            }
            yield recipe.model_copy(update={"fit": fit.model_copy(update=values)})


def _iter_launches(
    recipe: Recipe,
    launch: LaunchSpec,
    machine: Machine,
    pinned: Pinned,
    step_rows: int,
    specs: Sequence[Path],
) -> Iterator[LaunchSpec]:
    """Yield the launch as it is, then others that divide more, in the order of their cost."""
    cards = max((n for n in range(1, machine.cards + 1) if step_rows % n == 0), default=0)
    seen: list[dict[str, Any] | None] = []
    for other in _all_launches(recipe, launch, cards, pinned, specs):
        if other.accelerate not in seen:
            seen.append(other.accelerate)
            yield other


def _all_launches(
    recipe: Recipe, launch: LaunchSpec, cards: int, pinned: Pinned, specs: Sequence[Path]
) -> Iterator[LaunchSpec]:
    yield launch
    if not cards or machines_of(launch) > 1:
        return
    config = launch.accelerate or {}
    spread = bool(config) and not pinned.processes
    if spread:
        yield _on_cards(launch, cards, all_of_them=True)

    def named_launch(name: str, offload: Mapping[str, str]) -> LaunchSpec:
        sets = {f"accelerate.{DEEPSPEED}.{key}": value for key, value in offload.items()}
        other = catalog.load_spec(LaunchSpec, "launch", name, specs=specs, sets=sets)
        return _on_cards(other, cards, all_of_them=True)

    if not pinned.launch and cards > 1:
        yield named_launch("zero2", NOTHING_TO_HOST)
        yield named_launch("zero3", NOTHING_TO_HOST)
    if pinned.offload or not recipe.fit.optimizer.startswith("adamw"):  # as `check_launch` says
        return
    if not pinned.launch:
        yield named_launch("zero2", TO_HOST)
        yield named_launch("zero3", {**TO_HOST, "offload_param_device": "cpu"})
        return
    for offloaded in _offloaded_launches(launch):
        yield offloaded
        if spread:
            yield _on_cards(offloaded, cards, all_of_them=True)


def _offloaded_launches(launch: LaunchSpec) -> Iterator[LaunchSpec]:
    """Yield the launch with its optimiser, then also its weights, in host memory, as far as it
    can."""
    config = launch.accelerate or {}
    if FSDP in config:
        yield _with_section(launch, FSDP, {"fsdp_offload_params": True})
    stage = int((config.get(DEEPSPEED) or {}).get("zero_stage") or 0)
    if stage >= 1:
        yield _with_section(launch, DEEPSPEED, TO_HOST)
    if stage == 3:
        yield _with_section(launch, DEEPSPEED, {**TO_HOST, "offload_param_device": "cpu"})


def _with_section(launch: LaunchSpec, name: str, values: Mapping[str, Any]) -> LaunchSpec:
    config = launch.accelerate or {}
    section = {**config[name], **values}
    return launch.model_copy(update={"accelerate": {**config, name: section}})


def _on_cards(launch: LaunchSpec, cards: int, *, all_of_them: bool = False) -> LaunchSpec:
    """Return the launch on no more processes than there are cards, or on all of these."""
    config = launch.accelerate
    if config is None or not cards or machines_of(launch) > 1:
        return launch
    count = cards if all_of_them else min(cards, launch.process_count)
    return launch.model_copy(update={"accelerate": {**config, "num_processes": count}})


def machines_of(launch: LaunchSpec) -> int:
    """Return the number of machines of a launch."""
    return int((launch.accelerate or {}).get("num_machines") or 1)


def format_gb(size: float) -> str:
    """Return bytes in GB as text."""
    return f"{size / GB:,.1f}" if size < 9.95 * GB else f"{size / GB:,.0f}"
