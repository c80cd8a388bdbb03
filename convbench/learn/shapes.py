"""Dimensions of a model, read from its config.json, for estimates of a training's memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.models.weights_path import find_file, weights_of
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
        """Return the number of weights in embeddings, head, attention and feed-forward, without
        norms and biases."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        embeddings = self.words * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (attention + 3 * self.hidden * self.wide)


@lru_cache
def shape_of(model: str) -> ModelShape | None:
    """Return the dimensions of a model given by path, Hub id or a reference to either.

    Missing sizes are assumed: as many key heads as heads, a feed-forward of four times the width.
    Return None if its config.json is unavailable or lacks width, layers, vocabulary or heads. The
    result is kept for the process.
    """
    return _read_shape(_read_config(model))


@lru_cache
def has_dense_weights(model: str) -> bool:
    """Return True unless a model's config.json tells of experts or of quantised weights, whose
    number or size `shape_of` does not tell."""
    config = _read_config(model)
    return not any(
        "quantization" in key or "expert" in key for key, value in config.items() if value
    )


def _read_config(model: str) -> dict[str, Any]:
    """Return a model's config.json, of several parts that of the text with a quantisation of all;
    empty without one."""
    file = find_file(weights_of(model) or model, "config.json")
    config = read_object(Path(file)) if file else {}
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        return config
    return {**inner, "quantization_config": config.get("quantization_config")}


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
