"""Memory of an engine that serves a model (vLLM, or the local one), and its place on the cards;
arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convbench.models.weights_path import ModelShape

HALF = 2
"""Bytes of a bfloat16 number."""
ENGINE_BYTES = 4e9
"""Assumed bytes of an engine beside weights and cache on each card: CUDA's context, recorded
graphs, and the activations of the prompts that it reads at once."""
USABLE = 0.9
"""Share of a card for all its engines together, vLLM's own default for one; each also has a CUDA
context of its own."""


@dataclass(frozen=True)
class EngineMemory:
    """Bytes of an engine, by use."""

    weights: float
    cache: float
    """Keys and values of all conversations at once."""
    least_cache: float
    """Keys and values of the longest conversation, without which it does not start."""
    overhead: float = ENGINE_BYTES

    @property
    def total_bytes(self) -> float:
        """The sum on one card."""
        return self.weights + self.cache + self.overhead


def engine_memory(shape: ModelShape, tokens: int, conversations: int) -> EngineMemory:
    """Return the memory of an engine in bf16 that holds so many conversations of so many tokens."""
    each = 2 * shape.layers * shape.keys * HALF * tokens
    weights = shape.weight_count * HALF
    return EngineMemory(float(weights), float(each * conversations), float(each))


@dataclass(frozen=True)
class EnginePlacement:
    """Where copies of an engine stand on a machine's cards."""

    cards_each: int
    """Cards that one copy is split over (tensor parallel)."""
    copies: int
    """Copies beside each other (data parallel)."""
    share: float
    """Share of each card that holds weights, cache and overhead; a smaller one leaves fewer
    conversations at once."""


def place_engine(memory: EngineMemory, cards: int, card_bytes: float) -> EnginePlacement | None:
    """Return the placement with most copies; None if the cards cannot hold one."""
    split = 1
    while split <= cards:
        least = (memory.weights + memory.least_cache) / split + memory.overhead
        if least <= USABLE * card_bytes:
            need = (memory.weights + memory.cache) / split + memory.overhead
            return EnginePlacement(split, cards // split, min(USABLE, need / card_bytes))
        split *= 2
    return None


def shares_of_card(engines: Sequence[EngineMemory], card_bytes: float) -> tuple[float, ...] | None:
    """Return the share of one card for each engine that stands on it; they add up to USABLE (0.9).

    A share is the engine's weights and an equal part of what the weights of all leave of USABLE of
    the card. None if that part is too small for one's least cache and overhead.
    """
    left = USABLE * card_bytes - sum(engine.weights for engine in engines)
    if any(engine.least_cache + engine.overhead > left / len(engines) for engine in engines):
        return None
    return tuple((engine.weights + left / len(engines)) / card_bytes for engine in engines)
