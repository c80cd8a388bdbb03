"""Memory of an engine that serves a model (vLLM, or the local one), and its place on the cards;
arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convbench.models.weights_path import ModelShape

HALF = 2
"""Bytes of a bfloat16 number."""
ENGINE_BYTES = 4e9
"""Assumed bytes of an engine beside weights and cache on each card: CUDA's context, recorded
graphs, and the activations of the prompts that it reads at once."""
LOCAL_ENGINE_BYTES = 1e9
"""The same of the local engine: CUDA's context."""
FEW = 8
"""Conversations for which each copy has room where the cards allow it: with less it would wait."""
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

    @property
    def least_bytes(self) -> float:
        """Bytes on one card with which it starts."""
        return self.weights + self.least_cache + self.overhead

    def on_each(self, cards: int) -> EngineMemory:
        """Return the memory on each of the cards that one copy is split over."""
        weights, cache, least = (n / cards for n in (self.weights, self.cache, self.least_cache))
        return replace(self, weights=weights, cache=cache, least_cache=least)


def engine_memory(shape: ModelShape, tokens: int, conversations: int = 1) -> EngineMemory:
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


def place_engine(
    memory: EngineMemory, cards: int, card_bytes: float, usable: float = USABLE
) -> EnginePlacement | None:
    """Return the placement with most copies, of this share of each card at most, each with room for
    a few of the longest conversations, or if there is no such for one; None if the cards cannot
    hold that."""
    for conversations in (FEW, 1):
        split = 1
        while split <= cards:
            each = memory.on_each(split)
            least = each.least_bytes + (conversations - 1) * each.least_cache
            if least <= usable * card_bytes:
                share = min(usable, max(least, each.total_bytes) / card_bytes)
                return EnginePlacement(split, cards // split, share)
            split *= 2
    return None


def shares_of_card(
    engines: Sequence[EngineMemory], card_bytes: float, set_shares: Sequence[float | None] = ()
) -> tuple[float, ...] | None:
    """Return the share of one card for each engine that stands on it: the one that is set for it,
    else what it takes at least and an equal part of what all leave; None if one does not start."""
    shares = set_shares or (None,) * len(engines)
    least = [engine.least_bytes / card_bytes for engine in engines]
    unset = [need for need, share in zip(least, shares, strict=True) if share is None]
    left = USABLE - sum(share or 0.0 for share in shares) - sum(unset)
    if any(share is not None and share < need for need, share in zip(least, shares, strict=True)):
        return None
    if unset and (left < 0 or left + sum(unset) == 0):
        return None
    return tuple(
        need + left / len(unset) if share is None else share
        for need, share in zip(least, shares, strict=True)
    )
