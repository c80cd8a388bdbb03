"""The dimensions of a model, from its configuration; no weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.models.where import find_file, resolve_reference
from convbench.store.shape import read_object


@dataclass(frozen=True)
class ModelShape:
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
    def weight_count(self) -> int:
        """The number of weights, without norms."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        embeddings = self.words * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (attention + 3 * self.hidden * self.wide)


@lru_cache
def shape_of(model: str) -> ModelShape | None:
    """Return the dimensions of a model, given by path, Hub id or a reference to either; None if its
    configuration is unavailable or of an unknown form."""
    file = find_file(resolve_reference(model) or model, "config.json")
    config = read_object(Path(file)) if file else {}
    inner = config.get("text_config")
    return _read_shape(inner if isinstance(inner, dict) else config)


def _read_shape(config: dict[str, Any]) -> ModelShape | None:
    names = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
    sizes = [_positive_int(config.get(name)) for name in names]
    if None in sizes:
        return None
    hidden, layers, words, heads = (size for size in sizes if size is not None)
    each = _positive_int(config.get("head_dim")) or hidden // heads
    shared = _positive_int(config.get("num_key_value_heads")) or heads
    wide = _positive_int(config.get("intermediate_size")) or 4 * hidden
    tied = bool(config.get("tie_word_embeddings"))
    return ModelShape(hidden, layers, words, wide, heads * each, shared * each, tied)


def _positive_int(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32
    return value if good else None
