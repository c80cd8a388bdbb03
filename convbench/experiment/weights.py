"""How many weights a model has, from its configuration; nothing is loaded."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.models.where import find, named
from convbench.store.shape import read_object


@lru_cache
def weights_of(model: str) -> int | None:
    """Return the weights of a model (a path, a Hub id or a reference that says where it lies), as
    its shape has them; None where it is not at hand or of no shape that is known.

    Counted are embeddings, attention (with grouped heads) and a gated feed-forward, as in Llama.
    """
    file = find(named(model) or model, "config.json")
    config = read_object(Path(file)) if file else {}
    inner = config.get("text_config")
    return _counted(inner if isinstance(inner, dict) else config)


def _counted(config: dict[str, Any]) -> int | None:
    names = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
    sizes = [config.get(name) for name in names]
    if not all(isinstance(size, int) and 0 < size < 1 << 32 for size in sizes):
        return None
    hidden, layers, words, heads = (int(size) for size in sizes if size is not None)
    wide = _whole(config.get("intermediate_size")) or 4 * hidden
    each = _whole(config.get("head_dim")) or hidden // heads
    shared = _whole(config.get("num_key_value_heads")) or heads
    attention = 2 * hidden * each * (heads + shared)
    embeddings = words * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return embeddings + layers * (attention + 3 * hidden * wide)


def _whole(found: Any) -> int | None:
    return found if isinstance(found, int) and 0 < found < 1 << 32 else None
