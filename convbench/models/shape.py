"""The shape of a model, from its configuration; nothing is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.models.where import find, named
from convbench.store.shape import read_object


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder like Llama: embeddings, attention with grouped heads, a gated
    feed-forward."""

    hidden: int
    layers: int
    words: int
    """Tokens of the vocabulary."""
    wide: int
    """Width of the feed-forward."""
    queries: int
    """Width of all query heads."""
    keys: int
    """Width of all key heads, as of all value heads."""
    tied: bool
    """Whether embeddings and head are one matrix."""

    @property
    def weights(self) -> int:
        """How many weights there are, norms left out."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        embeddings = self.words * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (attention + 3 * self.hidden * self.wide)


@lru_cache
def shape_of(model: str) -> Shape | None:
    """Return the shape of a model (a path, a Hub id or a reference that says where it lies); None
    where it is not at hand or of no shape that is known."""
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
