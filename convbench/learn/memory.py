"""Memory that a training takes of a card, by one formula, and the launch that fits it.

    states = weights x 16           full: fp32 weights, gradients, two moments of AdamW
             weights x 2            LoRA: the frozen base in bf16 (4 under a distilled student)
             weights x 0.6          QLoRA: the base in 4 bits
           + weights x 2            a teacher, or a reference, held beside
    acts   = positions x hidden x (4 x layers + 60)       with gradient checkpointing
           + (6 x positions + 24 x labelled) x vocabulary    where whole distributions are compared
    peak   = max(states, states - gradients + acts)

Within 8 % of counted trainings of 135M, 1B and 8B weights. Without bf16 what is in bf16 takes twice
as much. ZeRO-2 shares gradients and moments among the processes, ZeRO-3 the weights too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench.schema.recipe import Fit, LaunchSpec, Recipe

WEIGHTS, GRADIENTS, MOMENTS = 4, 4, 8
"""Bytes a weight that is trained."""
USABLE = 0.9
"""Share of a card's memory that a training may plan with: the allocator keeps some."""
WITHOUT_CHECKPOINTING = 30
"""Bytes a position, layer and hidden unit without gradient checkpointing, in place of 4."""


@dataclass(frozen=True, slots=True)
class Cards:
    """Accelerators of one machine."""

    count: int
    card_bytes: int = 0
    host_bytes: int | None = None
    """Memory of the machine itself; None if it is unknown."""

    def line(self) -> str:
        """Return what they are, as in `8 x 80 GB`."""
        return f"{self.count} x {self.card_bytes / 1e9:.0f} GB" if self.count else "no accelerator"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a training takes."""

    states: float
    """Of a card: weights, gradients, moments, and what is held beside."""
    activations: float
    """Of a card: activations of one batch."""
    peak: float
    """Of a card, at most."""
    host: float = 0.0
    """Of the machine's own memory, what all processes offload to it."""

    def fits(self, cards: Cards) -> bool:
        """Return whether it fits these cards, and the machine as far as its memory is known."""
        fits_host = cards.host_bytes is None or self.host <= USABLE * cards.host_bytes
        return self.peak <= USABLE * cards.card_bytes and fits_host

    def line(self) -> str:
        """Return a line with its parts in GB."""
        host = f", {self.host / 1e9:.1f} GB of the machine's memory" if self.host else ""
        return (
            f"memory: about {self.peak / 1e9:.2f} GB a process ({self.states / 1e9:.2f} weights "
            f"and optimiser, {self.activations / 1e9:.2f} activations{host})"
        )


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions of a Llama-like decoder."""

    weights: int
    """Number of weights."""
    hidden: int
    layers: int
    words: int
    """Size of the vocabulary."""


def shape_of(model: str) -> ModelShape | None:
    """Return the dimensions of a model, by path or Hub id, or None if its size cannot be told: a
    mixture of experts, quantised weights, or no configuration that says width, layers, vocabulary
    and heads. Weights are those of embeddings, head, attention with grouped heads and a gated
    feed-forward, by default four times as wide; without norms and biases."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(Path(model).expanduser()))
    except (OSError, ValueError):
        return None
    text = config.get_text_config()
    known = {**config.to_dict(), **text.to_dict()}
    if any("quantization" in k or "expert" in k for k, v in known.items() if v):
        return None
    names = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
    sizes = [getattr(text, name, None) or 0 for name in names]
    if not all(sizes):
        return None
    hidden, layers, words, heads = sizes
    each = getattr(text, "head_dim", None) or hidden // heads
    shared = getattr(text, "num_key_value_heads", None) or heads
    attention = 2 * hidden * each * (heads + shared)
    gated = 3 * hidden * (getattr(text, "intermediate_size", None) or 4 * hidden)
    tied = getattr(text, "tie_word_embeddings", False)
    embeddings = words * hidden * (1 if tied else 2)
    return ModelShape(embeddings + layers * (attention + gated), hidden, layers, words)


def in_bf16(fit: Fit, cards: int) -> bool:
    """Return whether a training computes in bf16; `auto` does on cards."""
    return cards > 0 if fit.precision == "auto" else fit.precision == "bf16"


def estimate_memory(
    shape: ModelShape, recipe: Recipe, launch: LaunchSpec, longest: int, learnt: int, bf16: bool
) -> Memory:
    """Return the memory of a recipe's training on rows of at most `longest` tokens, `learnt` of
    them with loss, under a launch."""
    weights, fit = shape.weights, recipe.fit
    rows = fit.batch_size * (1 if recipe.trainer in ("weighted_sft", "distil") else 2)
    positions, labelled = rows * longest, rows * learnt
    half = 2 if bf16 else 4
    of_layers = 4 if fit.gradient_checkpointing else WITHOUT_CHECKPOINTING
    acts = positions * shape.hidden * (of_layers * shape.layers + 60) * half / 2
    distils = recipe.trainer == "distil"
    if distils or recipe.loss.anchor == "kl":
        acts += (6 * positions + 24 * labelled) * shape.words
    needs_reference = recipe.loss.anchor == "kl" or recipe.loss.name != "nll"
    beside = half if distils or (needs_reference and recipe.lora is None) else 0
    if recipe.lora is not None:
        base = 0.6 if recipe.lora.quantize == "4bit" else 4 if distils else half
        states = weights * (base + beside)
        return Memory(states, acts, states + acts)
    whole, gradients, moments, host = _sharded(launch.accelerate or {}, launch.process_count)
    states = weights * (whole + gradients + moments + beside)
    peak = max(states, states - weights * gradients + acts)
    return Memory(states, acts, peak, weights * host)


def choose_launch(
    shape: ModelShape | None,
    recipe: Recipe,
    cards: Cards,
    launches: dict[str, LaunchSpec],
    rows: tuple[int, int],
) -> tuple[LaunchSpec, Memory | None, bool]:
    """Return (launch, its memory or None where the size is unknown, whether it fits).

    The launch that the recipe asks for, if the cards are here and it fits; else the first of `ddp`,
    `zero2`, `zero3` and `zero3` with offload on as many cards as share `fit.batch`; one process on
    one card, or without any. `launches` are the specs by name, `rows` (longest, learnt) in tokens.
    """
    bf16 = in_bf16(recipe.fit, cards.count)

    def memory_of(launch: LaunchSpec) -> Memory | None:
        return estimate_memory(shape, recipe, launch, *rows, bf16) if shape else None

    if not cards.count:
        return launches["none"], memory_of(launches["none"]), True
    batch = recipe.fit.batch
    processes = cards.count
    while batch is not None and batch % processes:  # they share a step's rows evenly
        processes -= 1
    names = ["none"] if processes == 1 else ["ddp", "zero2", "zero3"]
    tried = [_scaled(launches[name], processes) for name in names]
    tried.append(_scaled(launches["zero3"], processes, offload=True))
    wanted = launches.get(recipe.launch)
    if wanted is not None and wanted.process_count <= cards.count:
        tried.insert(0, wanted)
    for launch in tried:
        memory = memory_of(launch)
        if memory is None or memory.fits(cards):
            return launch, memory, True
    return tried[-1], memory_of(tried[-1]), False


def _scaled(launch: LaunchSpec, processes: int, *, offload: bool = False) -> LaunchSpec:
    """Return the launch on so many processes, with optimiser and weights in the machine's memory
    if they are to be offloaded."""
    if launch.accelerate is None:
        return launch
    settings = {**launch.accelerate, "num_processes": processes}
    if offload:
        devices = {"offload_optimizer_device": "cpu", "offload_param_device": "cpu"}
        settings["deepspeed_config"] = {**settings["deepspeed_config"], **devices}
    return launch.model_copy(update={"accelerate": settings})


def _sharded(accelerate: dict[str, Any], processes: int) -> tuple[float, float, float, float]:
    """Return bytes a weight of a card for (weights, gradients, moments), and of the machine's
    memory for all processes."""
    deepspeed = accelerate.get("deepspeed_config") or {}
    stage = int(deepspeed.get("zero_stage") or 0)
    stage = 3 if accelerate.get("distributed_type") == "FSDP" else stage
    weights = WEIGHTS / processes if stage == 3 else float(WEIGHTS)
    gradients = GRADIENTS / processes if stage >= 2 else float(GRADIENTS)
    moments = MOMENTS / processes if stage >= 1 else float(MOMENTS)
    host = 0.0
    if deepspeed.get("offload_optimizer_device") == "cpu" and stage:
        moments, host = 0.0, host + MOMENTS + WEIGHTS  # moments, and the weights they are of
    if deepspeed.get("offload_param_device") == "cpu" and stage == 3:
        weights, host = 0.0, host + WEIGHTS / 2
    return weights, gradients, moments, host
