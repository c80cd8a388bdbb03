"""A key-value cache of slots: rows of unequal length that come and go on their own.

Imported only by `batcher`, once torch is wanted.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache

CHUNK = 128
"""Columns are allocated in multiples of this many tokens."""


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values [rows, heads, columns, head_dim] per layer; row i holds one sequence from
    column 0 on. Active rows are always the first ones. `at` says where the next token goes."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.columns = 0
        self.rows = 0
        self._index = torch.zeros(0, dtype=torch.long)
        self._at = torch.zeros(0, dtype=torch.long)
        self._width = 0

    def fit(self, like: DynamicCache, rows: int, columns: int, active: int) -> None:
        """Make room for `rows` x `columns`; the first `active` rows keep what they hold."""
        columns = -(-columns // CHUNK) * CHUNK
        if self.keys and rows <= self.rows and columns <= self.columns:
            return
        self.rows, self.columns = max(rows, active), max(columns, self.columns)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = [self._empty(getattr(layer, name)) for layer in like.layers]
            for to, held in zip(new, old, strict=False):
                to[:active, :, : held.shape[2]] = held[:active]
            setattr(self, name, new)

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        _, heads, _, size = like.shape
        return like.new_empty((self.rows, heads, self.columns, size))

    def fill(self, like: DynamicCache, first: int, count: int) -> None:
        """Copy freshly read prompts [count, heads, length, head_dim] to rows from `first` on."""
        for to, layer in zip(self.keys, like.layers, strict=True):
            to[first : first + count, :, : layer.keys.shape[2]] = layer.keys
        for to, layer in zip(self.values, like.layers, strict=True):
            to[first : first + count, :, : layer.values.shape[2]] = layer.values

    def move(self, source: list[int], target: list[int]) -> None:
        """Copy rows `source` over rows `target`."""
        for held in (*self.keys, *self.values):
            held[target] = held[source]

    def aim(self, lengths: torch.Tensor) -> None:
        """Set where the next token of each active row goes: lengths [active], before it."""
        self._index = torch.arange(len(lengths), device=lengths.device)
        self._at = lengths
        self._width = int(lengths.max()) + 1

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Store one new token a row, return all columns in use; called by the attention."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        keys[self._index, :, self._at] = key_states[:, :, 0]
        values[self._index, :, self._at] = value_states[:, :, 0]
        count = len(self._index)
        return keys[:count, :, : self._width], values[:count, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the longest length so far; positions are given explicitly."""
        return max(0, self._width - 1)


def per_token_bytes(cache: DynamicCache) -> int:
    """Return the bytes that one token of one row takes over all layers."""
    total = 0
    for layer in cache.layers:
        for held in (layer.keys, layer.values):
            total += held.shape[1] * held.shape[3] * held.element_size()
    return total
