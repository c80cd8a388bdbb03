"""Memory of one training step and of scoring, as arithmetic over a model's shape; no torch.

A step's peak is the largest of three moments: the end of the forward pass, the backward pass, and
the optimiser's step. `tests/bench/step_memory.py` runs the trainers' own steps beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from convbench.judge.adaptation.settings import InnerSettings
from convbench.models.weights_path import ModelShape
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
    def targets(self) -> int:
        """Tokens with a loss, of all rows."""
        return self.rows * self.labelled


@dataclass(frozen=True)
class MemoryParts:
    """Bytes at the peak of one process, by use, on its device; `host` beside them."""

    weights: float = 0.0
    """The policy's weights, and copies of them in the precision that computes."""
    gradients: float = 0.0
    optimizer: float = 0.0
    """Moments, master weights, and what the step itself needs."""
    activations: float = 0.0
    logits: float = 0.0
    reference: float = 0.0
    """A frozen model beside the policy: DPO's reference, a teacher, an anchor's base."""
    adapters: float = 0.0
    """Adapters with their gradients and moments."""
    margin: float = 0.0
    host: float = 0.0
    """Host memory of this process: what is offloaded, or whole weights while it loads them."""

    @property
    def total(self) -> float:
        """The sum on the device, without `host`."""
        return sum(v for name, v in vars(self).items() if name != "host")


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
        return ShardPlan(count, count, count, count, count, "fsdp", host)
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
    settings of a `pretraining`; `reference`: the shape of a teacher other than `shape`."""
    step = _Step(kind, shape, settings, rows, precision, shards, device, reference or shape)
    moments = step.moments()
    peak = max(moments, key=lambda parts: parts.total)
    return replace(peak, margin=MARGIN * peak.total, host=step.host_bytes())


MARGIN = 0.08
"""Share of the device's memory that the allocator keeps beyond what lives."""
CHUNK_ROWS, CHUNK_WORDS = 4096, 32_768
"""Tokens and words whose logits TRL's head computes at once."""
CPU_CHUNK = 256
"""Tokens whose logits exist at once on a CPU."""


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
    def width(self) -> int:
        """Bytes of a number that computes."""
        return HALF if self.precision == "bf16" else FLOAT

    @property
    def adapter_weights(self) -> int:
        """The number of weights of the adapter; 0 where all weights are trained."""
        settings = self.settings
        if isinstance(settings, InnerSettings):
            if settings.tuning == "full":
                return 0
            return settings.seeds * lora_weights(self.shape, settings.r, settings.target_modules)
        lora = settings.lora
        if lora is None or (settings.distil is not None and settings.distil.lora_on == "teacher"):
            return 0
        return lora_weights(self.shape, lora.r, lora.target_modules)

    @property
    def checkpoints(self) -> bool:
        """Whether activations are computed again in the backward pass."""
        return isinstance(self.settings, Recipe) and self.settings.fit.gradient_checkpointing

    @property
    def accumulates(self) -> bool:
        """Whether gradients of an earlier micro-batch are there in the forward pass."""
        settings = self.settings
        steps = settings.accumulation if isinstance(settings, InnerSettings) else (
            settings.fit.accumulation
        )
        return steps > 1

    def moments(self) -> list[MemoryParts]:
        """Return the parts at the end of the forward pass, in the backward pass, in the step."""
        count, adapter = self.shape.weight_count, self.adapter_weights
        shards, master = self.shards, self.shards.engine == "deepspeed"
        trained = adapter or count
        size = HALF if self.precision == "bf16" and (master or adapter) else FLOAT
        weights = count * size / shards.weights
        gradients = trained * (HALF if master and self.precision == "bf16" else FLOAT)
        gradients /= shards.gradients
        optimizer = trained * (12 if master else 8) / shards.optimizer
        copies = 0.0
        if self.precision == "bf16" and not master and not adapter:
            copies = float(HALF * count)
        base = MemoryParts(
            weights=0.0 if "weights" in shards.host else weights,
            optimizer=0.0 if "optimizer" in shards.host else optimizer,
            reference=self.reference_bytes(),
        )
        kept, working = self.activation_numbers()
        logits = self.logit_bytes()
        forward = replace(
            base,
            weights=base.weights + copies,
            gradients=gradients if self.accumulates else 0.0,
            activations=kept,
            logits=logits,
        )
        backward = replace(
            base, gradients=gradients, activations=kept + working, logits=logits
        )
        step = replace(base, gradients=gradients, optimizer=base.optimizer + 4 * trained)
        return [forward, backward, step]

    def reference_bytes(self) -> float:
        """Return the bytes of a frozen model beside the policy."""
        count = self.reference.weight_count
        if self.kind == "distillation":
            return float(count * self.width / self.shards.reference)
        if self.kind == "preference" and not self.adapter_weights:
            size = self.width if self.shards.engine == "deepspeed" else FLOAT
            return float(count * size / self.shards.reference)
        return 0.0

    def activation_numbers(self) -> tuple[float, float]:
        """Return (bytes kept for the backward pass, bytes of the layer in work)."""
        shape, positions = self.shape, self.rows.positions
        layer = 6 * shape.hidden + 3 * shape.queries + 2 * shape.keys + 4 * shape.wide
        layer_bytes = float(positions * layer * self.width)
        if self.checkpoints:
            return float(positions * shape.layers * shape.hidden * FLOAT), layer_bytes
        return layer_bytes * shape.layers, layer_bytes

    def logit_bytes(self) -> float:
        """Return the bytes of logits and of numbers computed from them."""
        shape, rows = self.shape, self.rows
        if self.kind in ("weighted", "preference"):
            if self.device == "cpu":
                return float(3 * min(CPU_CHUNK, rows.targets) * shape.words * FLOAT)
            chunk = min(CHUNK_ROWS, rows.targets) * min(CHUNK_WORDS, shape.words) * self.width
            head = 0 if self.adapter_weights else shape.words * shape.hidden * FLOAT
            return float(chunk + head)
        if self.kind == "critic":
            numbers = rows.positions * shape.words
            return float(2 * numbers * self.width + rows.targets * shape.words * FLOAT)
        if self.kind == "distillation":
            numbers = rows.positions * shape.words
            return float(2 * numbers * self.width + 8 * rows.targets * shape.words * self.width)
        return float(rows.positions * shape.words * (self.width + 2 * FLOAT))

    def host_bytes(self) -> float:
        """Return the host memory of this process."""
        models = 2 if self.kind == "distillation" or self.reference_bytes() else 1
        size = HALF if self.adapter_weights and self.precision == "bf16" else FLOAT
        loading = models * self.shape.weight_count * size
        trained = self.adapter_weights or self.shape.weight_count
        lasting = 16 * trained / self.shards.optimizer if "optimizer" in self.shards.host else 0
        return float(max(loading, lasting))


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
    shape: ModelShape, rows: StepRows, *, precision: Precision = "bf16", weights: bool = True
) -> MemoryParts:
    """Return the peak of log-probabilities of a batch without gradients; `weights` false leaves out
    the model, where it lies in memory already.

    The logits of all positions exist at once, and in addition those of one row's own tokens: a
    copy, its float32 version (if it is not float32 already) and its logarithms.
    """
    width = HALF if precision == "bf16" else FLOAT
    own = rows.labelled * shape.words
    floats = FLOAT if width == FLOAT else 2 * FLOAT
    logits = rows.positions * shape.words * width + own * (width + floats)
    # The residual stream and one layer's tensors: its input's norm, gate, up and their product.
    layer = rows.positions * (3 * shape.hidden + 3 * shape.wide) * width
    hidden = rows.positions * 2 * shape.hidden * width
    inside, last = (layer, 0.0) if layer > hidden + logits else (hidden, logits)
    model = shape.weight_count * width if weights else 0
    parts = MemoryParts(weights=float(model), activations=float(inside), logits=float(last))
    return replace(parts, margin=MARGIN * parts.total)
