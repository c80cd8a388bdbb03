"""Memory of one training step and of scoring, as arithmetic over a model's shape; no torch.

A step's peak is the largest of three moments: the end of the forward pass, the backward pass, and
the optimiser's step. `tests/bench/step_memory.py` runs the trainers' own steps beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from convbench.judges.adaptation.settings import InnerSettings, rows_at_once
from convbench.learn.shapes import ModelShape
from convbench.schema.recipe import LaunchSpec, Recipe

Kind = Literal["weighted", "preference", "critic", "distillation", "pretraining"]
"""What is computed in a step: log-probabilities of weighted rows, pairs beside a reference, pairs
of trajectories (SWEET's critic), a student beside its teacher, or all tokens of texts (SEAL's
adaptations)."""
Precision = Literal["bf16", "fp32"]
Device = Literal["cuda", "cpu"]
"""On a CPU logits are computed of labelled tokens only, chunk by chunk."""
FLOAT, HALF = 4, 2
"""Bytes of a float32 and of a bfloat16 number."""


@dataclass(frozen=True)
class StepRows:
    """One micro-batch: the rows that are in the model at once (a pair counts two)."""

    rows: int
    tokens: int
    """Tokens of each row, padded."""
    labelled: int
    """Tokens of each row that have a loss."""

    @property
    def positions(self) -> int:
        """Positions of the padded batch."""
        return self.rows * self.tokens

    @property
    def target_count(self) -> int:
        """Tokens with a loss, of all rows."""
        return self.rows * self.labelled


@dataclass(frozen=True)
class MemoryParts:
    """Bytes at the peak of one process, by use, on its device; `host` beside them."""

    weights: float = 0.0
    """The policy's weights, and copies of them in the precision that computes."""
    gradients: float = 0.0
    optimizer: float = 0.0
    """Moments, master weights, and copies that the step itself needs."""
    activations: float = 0.0
    logits: float = 0.0
    reference: float = 0.0
    """A frozen model beside the policy: DPO's reference, a teacher, an anchor's base."""
    adapters: float = 0.0
    """Adapters; their gradients and moments are among the others'."""
    margin: float = 0.0
    host: float = 0.0
    """Host memory of this process: what is offloaded, or whole weights while it loads them."""

    @property
    def total(self) -> float:
        """The sum on the device, without `host`."""
        return float(sum(size for part, size in vars(self).items() if part != "host"))


@dataclass(frozen=True)
class ShardPlan:
    """How a launch spreads a training: by how many processes each part is divided, and what lies in
    host memory."""

    processes: int = 1
    weights: int = 1
    gradients: int = 1
    optimizer: int = 1
    reference: int = 1
    engine: Literal["none", "ddp", "deepspeed", "fsdp"] = "none"
    stage: int = 0
    """ZeRO's stage."""
    host: frozenset[str] = frozenset()
    """Names of parts in host memory: `optimizer` (with its gradients), `weights`."""


def shard_plan(launch: LaunchSpec) -> ShardPlan:
    """Return how a launch spreads a training."""
    config, count = launch.accelerate, launch.process_count
    if config is None:
        return ShardPlan()
    deepspeed = config.get("deepspeed_config")
    if deepspeed is None:
        if "fsdp_config" not in config:
            return ShardPlan(count, engine="ddp")
        offloads = bool(config["fsdp_config"].get("fsdp_offload_params"))
        host = frozenset(("optimizer", "weights") if offloads else ())
        return ShardPlan(count, count, count, count, 1, "fsdp", 3, host)
    stage = int(deepspeed.get("zero_stage") or 0)
    host = frozenset(
        name
        for name, setting, least in (
            ("optimizer", "offload_optimizer_device", 1),
            ("weights", "offload_param_device", 3),
        )
        if stage >= least and deepspeed.get(setting) not in (None, "none")
    )
    return ShardPlan(
        processes=count,
        weights=count if stage >= 3 else 1,
        gradients=count if stage >= 2 else 1,
        optimizer=count if stage >= 1 else 1,
        reference=count if stage >= 3 else 1,
        engine="deepspeed",
        stage=stage,
        host=host,
    )


def step_memory(
    kind: Kind,
    shape: ModelShape,
    settings: Recipe | InnerSettings,
    rows: StepRows,
    *,
    precision: Precision = "bf16",
    shards: ShardPlan = ShardPlan(),
    device: Device = "cuda",
    reference: ModelShape | None = None,
) -> MemoryParts:
    """Return the peak of one training step of a process. `settings`: the recipe, or the inner
    settings of a `pretraining`, whose `rows` are a batch of all seeds, divided as the training
    divides it; `reference`: the shape of a teacher other than `shape`."""
    step = _Step(kind, shape, settings, rows, precision, shards, device, reference or shape)
    if isinstance(settings, InnerSettings) and step.pass_rows is not None:
        step = replace(step, rows=replace(rows, rows=step.pass_rows * settings.seeds_at_once))
    peak = max(step.peak_candidates(), key=lambda parts: parts.total)
    return replace(peak, margin=MARGIN[device] * peak.total, host=step.host_bytes())


MARGIN: dict[Device, float] = {"cuda": 0.08, "cpu": 0.25}
"""Share of what lives that the allocator holds beyond it. On a card: rounded and split blocks and
kernels' own buffers, which a count on fake tensors cannot see (an assumption; none was at hand). On
a CPU: what the C library keeps of freed blocks, as measured."""
CHUNK_ROWS, CHUNK_WORDS = 4096, 32_768
"""Tokens and words whose logits TRL's head computes at once."""
CPU_CHUNK = 256
"""Tokens whose logits exist at once on a CPU (`kernels.CHUNK_TOKENS`)."""
BUCKET = 500_000_000
"""Numbers of gradients that DeepSpeed gathers before it sends them."""
LIVE = 1_000_000_000
"""Most numbers of weights that ZeRO-3 keeps gathered."""
IN_ONE_KERNEL = ("adamw_torch", "adamw_torch_fused", "sgd", "adamw_8bit", "adamw_bnb_8bit")
"""Optimisers whose step needs no copies on a card (`fitting.optimizer_name`)."""
MOMENTS = {"sgd": 0, "adamw_8bit": 2, "adamw_bnb_8bit": 2, "paged_adamw_8bit": 0}
"""Bytes of an optimiser's moments for a weight, by transformers' name; AdamW's are 8."""
Numbers = Literal["mixed", "half", "single"]
"""Numbers of a forward pass: bfloat16 by autocast on float32 weights, all bfloat16, all float32."""


@dataclass(frozen=True)
class _Layer:
    """Bytes that one layer keeps for its backward pass, for each position."""

    hidden: int
    """For each number of the residual stream: sums, norms, inputs of linear parts."""
    heads: int
    """For each number of a query or of attention's output, and of keys and of values."""
    wide: int
    """For each number inside the feed-forward: gate, up, activation, product."""


_LAYER_BYTES: dict[tuple[Numbers, bool], _Layer] = {
    ("mixed", True): _Layer(26, 2, 8),
    ("mixed", False): _Layer(8, 2, 6),
    ("half", True): _Layer(16, 2, 8),
    ("half", False): _Layer(8, 2, 6),
    ("single", True): _Layer(24, 4, 16),
    ("single", False): _Layer(8, 4, 12),
}
"""By numbers and whether the layer's own weights are trained."""


@dataclass(frozen=True)
class _Step:
    """A step, and the bytes of its parts."""

    kind: Kind
    shape: ModelShape
    settings: Recipe | InnerSettings
    rows: StepRows
    precision: Precision
    shards: ShardPlan
    device: Device
    reference: ModelShape

    @property
    def number_bytes(self) -> int:
        """Bytes of a number that computes."""
        return HALF if self.precision == "bf16" else FLOAT

    @cached_property
    def adapter_shape(self) -> _Adapter | None:
        """The adapter; None if all weights are trained."""
        settings = self.settings
        if isinstance(settings, InnerSettings):
            if settings.tuning == "full":
                return None
            count = settings.seeds * lora_weights(self.shape, settings.r, settings.target_modules)
            return _Adapter(count, settings.target_modules, 0.0)
        lora = settings.lora
        if lora is None or (self.kind == "distillation" and not _trains_student(settings)):
            return None
        dropout = 0.0 if self.kind == "preference" else lora.dropout  # TRL's DPO turns it off
        count = lora_weights(self.shape, lora.r, lora.target_modules)
        return _Adapter(count, lora.target_modules, dropout)

    @cached_property
    def number_kind(self) -> Numbers:
        """The numbers of the forward pass."""
        if self.precision == "fp32":
            return "single"
        if self.kind == "pretraining" or self.shards.engine in ("deepspeed", "fsdp"):
            return "half"
        frozen = self.adapter_shape is not None and self.kind != "distillation"
        return "half" if frozen else "mixed"

    @property
    def is_checkpointed(self) -> bool:
        """Whether activations are computed again in the backward pass."""
        if isinstance(self.settings, InnerSettings):
            return self.pass_rows is not None
        return self.settings.fit.gradient_checkpointing

    @property
    def pass_rows(self) -> int | None:
        """Rows of each seed in one pass of an adaptation whose batch is divided; else None."""
        if not isinstance(self.settings, InnerSettings):
            return None
        return rows_at_once(self.rows.tokens, self.settings.seeds_at_once, self.settings)

    @property
    def has_several_batches(self) -> bool:
        """Whether gradients of an earlier micro-batch are there in the forward pass."""
        settings = self.settings
        if isinstance(settings, InnerSettings):
            return settings.accumulation > 1 or (self.pass_rows or math.inf) < settings.batch_size
        return settings.fit.accumulation > 1

    @property
    def is_offloaded(self) -> bool:
        """Whether an adaptation of all weights has their float32 copy in host memory."""
        settings = self.settings
        return isinstance(settings, InnerSettings) and (settings.tuning, settings.offload) == (
            "full",
            "cpu",
        )

    @property
    def trained_weights(self) -> int:
        """The number of weights that are trained."""
        return self.adapter_shape.weights if self.adapter_shape else self.shape.weight_count

    def peak_candidates(self) -> list[MemoryParts]:
        """Return the parts at the moments one of which is the peak."""
        if self.kind == "pretraining":
            lasting, before, gradients, work = self.own_copy()
        else:
            lasting, before, gradients, work = self.held_bytes()
        head = 0.0 if self.adapter_shape else float(FLOAT * self.shape.words * self.shape.hidden)
        copies = self.weight_copies()
        all_layers = self.kept_bytes()
        one_layer = self.layer_bytes() + self.work_bytes()
        inside = all_layers + (one_layer if self.is_checkpointed else self.work_bytes())
        stream = float(2 * FLOAT * self.shape.hidden * self.rows.positions)
        logits, fused = self.logit_bytes(), self.kind not in ("pretraining", "distillation")

        def parts_at(
            more: float = 0.0, grads: float = 0.0, acts: float = 0.0, last: float = 0.0
        ) -> MemoryParts:
            return replace(
                lasting,
                weights=lasting.weights + more,
                gradients=grads,
                activations=acts,
                logits=last,
            )

        saved_copies = 0.0 if self.is_checkpointed else copies
        ends = saved_copies if self.adapter_shape else copies
        moments = [
            parts_at(ends, before, all_layers, logits["forward"]),
            parts_at(saved_copies, before + head * fused, all_layers, logits["backward"]),
            parts_at(saved_copies, before + head, inside),
            parts_at(0.0, gradients - (0.0 if self.shape.tied else head), one_layer),
            parts_at(0.0, gradients + (head if self.shape.tied else 0.0), stream),
            replace(parts_at(0.0, gradients), optimizer=lasting.optimizer + work),
        ]
        if lasting.reference or self.kind == "preference":
            beside = all_layers + self.forward_bytes()
            moments.append(parts_at(saved_copies, before, beside, logits["beside"]))
        return moments

    def held_bytes(self) -> tuple[MemoryParts, float, float, float]:
        """Return (what lasts from step to step, gradients before a pass and after it, what the
        optimiser's step needs besides)."""
        shards, count, trained = self.shards, self.shape.weight_count, self.trained_weights
        deepspeed, half = shards.engine == "deepspeed", self.number_kind == "half"
        size = HALF if half and shards.engine != "fsdp" else FLOAT
        gradient = HALF if deepspeed and half else FLOAT
        master = FLOAT if deepspeed and (half or shards.stage) else 0
        weights = 0.0 if "weights" in shards.host else count * size / shards.weights
        if shards.stage >= 3:  # those of the layers in work are whole
            weights += min(LIVE, count) * self.number_bytes
        gradients = trained * gradient / shards.gradients
        if shards.engine == "ddp":
            gradients *= 2  # its buckets are copies
        elif deepspeed and shards.stage:
            bucket = BUCKET if self.device == "cuda" else min(BUCKET, trained)
            gradients += bucket * gradient
        optimizer = trained * (self.moment_bytes + master) / shards.optimizer
        work = self.step_bytes() / shards.optimizer
        if deepspeed and half:
            work = trained * FLOAT / shards.optimizer  # the gradients in float32
        if "optimizer" in shards.host:
            optimizer, work = 0.0, 0.0
            gradients = float(BUCKET * gradient)
        parts = MemoryParts(
            weights=weights,
            optimizer=optimizer,
            adapters=float(trained * gradient if self.adapter_shape else 0),
            reference=self.reference_bytes(),
        )
        stays = self.has_several_batches or (deepspeed and shards.stage == 3)
        return parts, gradients if stays else 0.0, gradients, work

    def own_copy(self) -> tuple[MemoryParts, float, float, float]:
        """Return the same of an adaptation: float32 numbers in one tensor, of the adapters or of a
        copy of all weights (in host memory if it is offloaded)."""
        size = HALF if self.number_kind == "half" else FLOAT
        own, count = FLOAT * self.trained_weights, self.shape.weight_count
        weights = float(count * size)
        if self.is_offloaded:
            return MemoryParts(weights=2 * weights), 0.0, weights, 0.0
        if self.adapter_shape is None:
            weights += own + (count * HALF if self.number_kind == "half" else 0)
        # those of the batches before, each tensor's, and all in one
        before = own if self.has_several_batches else 0
        parts = MemoryParts(
            weights=weights, optimizer=2.0 * own, adapters=float(own if self.adapter_shape else 0)
        )
        return parts, float(before), float(before + 2 * own), 0.0

    @property
    def moment_bytes(self) -> int:
        """Bytes of the optimiser's moments for a weight."""
        name = self.settings.fit.optimizer if isinstance(self.settings, Recipe) else ""
        return MOMENTS.get(name, 8)

    def step_bytes(self) -> float:
        """Return what the optimiser's step needs besides gradients and moments."""
        name = self.settings.fit.optimizer if isinstance(self.settings, Recipe) else ""
        if self.device == "cpu":  # one tensor after the other
            widest = max(self.shape.words, self.shape.wide) * self.shape.hidden
            return float(2 * FLOAT * min(widest, self.trained_weights))
        return 0.0 if name in IN_ONE_KERNEL else float(FLOAT * self.trained_weights)

    def weight_copies(self) -> float:
        """Return the bytes of the layers' weights that autocast copies to bfloat16."""
        return float(HALF * layer_weights(self.shape)) if self.number_kind == "mixed" else 0.0

    @property
    def _has_reference(self) -> bool:
        """Whether a frozen copy of the policy is beside it: adapters are turned off instead."""
        return self.kind == "preference" and self.adapter_shape is None

    def reference_bytes(self) -> float:
        """Return the bytes of a frozen model beside the policy; a teacher is whole everywhere."""
        undivided = float(self.reference.weight_count * self.number_bytes)
        if self.kind == "distillation":
            return undivided
        return undivided / self.shards.reference if self._has_reference else 0.0

    def layer_bytes(self) -> float:
        """Return the bytes that one layer keeps for its backward pass."""
        shape, adapter, positions = self.shape, self.adapter_shape, self.rows.positions
        each = _LAYER_BYTES[self.number_kind, adapter is None]
        masked = self.rows.rows > 1  # rows are padded, and keys and values repeated for each query
        keys = shape.queries if masked else shape.keys
        number = each.hidden * shape.hidden + each.wide * shape.wide
        number += 2 * each.heads * (shape.queries + keys)
        if adapter:
            number += sum(
                size[0] * self.adapter_input_bytes()
                for name, size in linear_sizes(shape).items()
                if name in adapter.modules
            )
        mask = self.number_bytes * positions * self.rows.tokens if masked else 0
        return float(number * positions + mask)

    def adapter_input_bytes(self) -> int:
        """Return the bytes kept of each number that enters an adapter."""
        assert self.adapter_shape is not None
        if self.kind == "pretraining":
            return FLOAT
        if not self.adapter_shape.dropout:
            return self.number_bytes
        mask = FLOAT if self.device == "cpu" else 1
        return self.number_bytes + mask

    def kept_bytes(self) -> float:
        """Return the bytes that all layers keep for the backward pass."""
        shape, positions = self.shape, self.rows.positions
        mask = positions * self.rows.tokens if self.rows.rows > 1 else 0
        stream = HALF if self.number_kind == "half" else FLOAT
        ends = FLOAT * shape.hidden * positions  # the embeddings, the last norm
        if self.is_checkpointed:
            return float(positions * shape.layers * shape.hidden * stream + ends + mask)
        return self.layer_bytes() * shape.layers + ends + mask

    def work_bytes(self) -> float:
        """Return the bytes that live within the backward pass of one layer only."""
        shape = self.shape
        number = 3 * FLOAT * shape.hidden + 2 * self.number_bytes * shape.wide
        if self.adapter_shape:
            number += (2 if self.adapter_shape.dropout else 1) * FLOAT * shape.wide
        weights = 0
        if (
            self.number_kind == "mixed"
        ):  # copies of the layer's weights and a gradient before its cast
            weights = HALF * layer_weights(shape) // shape.layers + HALF * shape.hidden * shape.wide
        return float(number * self.rows.positions + weights)

    def forward_bytes(self) -> float:
        """Return the bytes within one layer of a model that keeps nothing."""
        shape = self.reference
        number = 3 * FLOAT * shape.hidden + 4 * self.number_bytes * shape.wide
        return float(number * self.rows.positions)

    def logit_bytes(self) -> dict[str, float]:
        """Return the bytes of logits and of numbers computed from them, in the forward and the
        backward pass, and while a reference or teacher computes its own."""
        shape, rows, width = self.shape, self.rows, self.number_bytes
        every, own = rows.positions * shape.words, rows.target_count * shape.words
        if self.kind == "pretraining":
            return {"forward": every * (width + 2.0 * FLOAT), "backward": every * (width + 12.0)}
        if self.kind == "distillation":
            return {
                "forward": float(every * (FLOAT + width)),
                "backward": float(every * (FLOAT + width) + own * FLOAT * 6),
                "beside": float(every * (FLOAT + width) + own * FLOAT * 6),
            }
        if self.kind == "critic" and self.device == "cpu":
            return {
                "forward": FLOAT * (every + 2.0 * own),
                "backward": FLOAT * (2.0 * every + own),
            }
        if self.device == "cpu":
            chunk = float(4 * FLOAT * min(CPU_CHUNK, rows.target_count) * shape.words)
            return {"forward": chunk, "backward": chunk, "beside": chunk}
        chunk = float(width * min(CHUNK_ROWS, rows.target_count) * CHUNK_WORDS)
        if self.number_kind == "mixed":
            chunk += HALF * CHUNK_WORDS * shape.hidden
        return dict.fromkeys(("forward", "backward", "beside"), chunk)

    def host_bytes(self) -> float:
        """Return the host memory of this process; ZeRO-3 loads a share of the weights in each."""
        if self.is_offloaded:  # weights, gradients of this pass and before, two moments
            return float(5 * FLOAT * self.trained_weights)
        size = HALF if self.number_kind == "half" and self.adapter_shape else FLOAT
        share = self.shards.weights if self.shards.engine == "deepspeed" else 1
        loading = self.shape.weight_count * size / share
        if self.kind == "distillation":
            loading += self.reference.weight_count * self.number_bytes
        elif self._has_reference:
            loading += self.reference.weight_count * self.number_bytes / share
        lasting = 16 * self.trained_weights / self.shards.optimizer
        return float(max(loading, lasting if "optimizer" in self.shards.host else 0))


@dataclass(frozen=True)
class _Adapter:
    """What of an adapter takes memory."""

    weights: int
    modules: tuple[str, ...]
    dropout: float


def _trains_student(recipe: Recipe) -> bool:
    return recipe.distil is None or recipe.distil.lora_on == "student"


def layer_weights(shape: ModelShape) -> int:
    """Return the number of weights of all layers' linear parts."""
    return shape.layers * sum(a * b for a, b in linear_sizes(shape).values())


def lora_weights(shape: ModelShape, rank: int, modules: Sequence[str]) -> int:
    """Return the number of weights of an adapter."""
    sizes = linear_sizes(shape)
    return shape.layers * rank * sum(sum(sizes[name]) for name in modules if name in sizes)


def linear_sizes(shape: ModelShape) -> dict[str, tuple[int, int]]:
    """Return (inputs, outputs) of a layer's linear parts, by name."""
    return {
        "q_proj": (shape.hidden, shape.queries),
        "k_proj": (shape.hidden, shape.keys),
        "v_proj": (shape.hidden, shape.keys),
        "o_proj": (shape.queries, shape.hidden),
        "gate_proj": (shape.hidden, shape.wide),
        "up_proj": (shape.hidden, shape.wide),
        "down_proj": (shape.wide, shape.hidden),
    }


def scoring_memory(
    shape: ModelShape,
    rows: StepRows,
    *,
    precision: Precision = "bf16",
    trained: bool = False,
    models: int = 1,
) -> MemoryParts:
    """Return the peak of the log-probabilities of a batch's labelled tokens, without gradients, by
    `models` models in memory; 0 leaves their weights out. `trained`: a model that is about to be
    trained, in float32 under autocast.

    The logits of all positions exist at once, and in addition those of one row's own tokens: a
    copy, its float32 version (if it is not float32 already) and its logarithms.
    """
    width = HALF if precision == "bf16" else FLOAT
    mixed = trained and precision == "bf16"
    own = rows.labelled * shape.words
    logits = rows.positions * shape.words * width + own * (FLOAT if width == FLOAT else 6)
    logits += own * FLOAT
    # The residual stream and one layer's tensors: its norm in float32, gate, up and their product.
    stream = FLOAT if mixed or width == FLOAT else HALF
    layer = rows.positions * (shape.hidden * (stream + 6) + 3 * shape.wide * width)
    hidden = rows.positions * shape.hidden * (stream + width)
    inside, last = (layer, 0.0) if layer > hidden + logits else (hidden, logits)
    weights = shape.weight_count * (FLOAT if mixed else width) * models
    if mixed and models:
        weights += HALF * (layer_weights(shape) + shape.words * shape.hidden)
    parts = MemoryParts(weights=float(weights), activations=float(inside), logits=float(last))
    return replace(parts, margin=MARGIN["cuda"] * parts.total)
