"""The dimensions of a model, from its configuration; no weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.models.where import find, named
from convbench.store.shape import read_object


@dataclass(frozen=True)
class Shape:
    """Dimensions of a Llama-like decoder: embeddings, attention with grouped heads, a gated
    feed-forward."""

    hidden: int
    layers: int
    words: int
    """Size of the vocabulary."""
    wide: int
    """Width of the feed-forward."""
    queries: int
    """Width of all query heads."""
    keys: int
    """Width of all key heads, and of all value heads."""
    tied: bool
    """Whether embeddings and head are one matrix."""

    @property
    def weights(self) -> int:
        """The number of weights, without norms."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        embeddings = self.words * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (attention + 3 * self.hidden * self.wide)


@lru_cache
def shape_of(model: str) -> Shape | None:
    """Return the dimensions of a model, given by path, Hub id or a reference to either; None if its
    configuration is unavailable or of an unknown form."""
    file = find(named(model) or model, "config.json")
    config = read_object(Path(file)) if file else {}
    inner = config.get("text_config")
    return _read(inner if isinstance(inner, dict) else config)


def _read(config: dict[str, Any]) -> Shape | None:
    names = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
    sizes = [_whole(config.get(name)) for name in names]
    if None in sizes:
        return None
    hidden, layers, words, heads = (size for size in sizes if size is not None)
    each = _whole(config.get("head_dim")) or hidden // heads
    shared = _whole(config.get("num_key_value_heads")) or heads
    wide = _whole(config.get("intermediate_size")) or 4 * hidden
    tied = bool(config.get("tie_word_embeddings"))
    return Shape(hidden, layers, words, wide, heads * each, shared * each, tied)


def _whole(found: Any) -> int | None:
    good = isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 32
    return found if good else None
