"""A key-value cache of slots: sequences of unequal length that come, grow and go on their own.

Imported only by `batcher`, once torch is wanted.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache

CHUNK = 128
"""Columns are allocated in multiples of this many tokens."""


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values [slots, heads, columns, head_dim] per layer; a slot's sequence starts at
    column 0. `aim` says which slots the next forward pass reads and where its tokens go."""

    def __init__(self, like: DynamicCache) -> None:
        super().__init__(layers=[])
        self._like = [(layer.keys, layer.values) for layer in like.layers]
        self.held: list[tuple[Any, Any]] = []
        self.slots = self.columns = 0
        self._index: Any = slice(0, 0)
        self._at: Any = None
        self._width = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in one slot over all layers, and in one layer once more: so much is
        held while the cache grows."""
        sizes: list[int] = [
            sum(one.shape[1] * one.shape[3] * one.element_size() for one in pair)
            for pair in self._like
        ]
        return int(sum(sizes) + max(sizes))

    def resize(self, slots: int, columns: int, keep: int) -> None:
        """Make room for `slots` x `columns`; the first `keep` slots keep what they hold.

        One layer after the other, each let go as soon as its larger one holds what is kept: old
        and new are never there at once but for one layer.
        """
        self.slots, self.columns = slots, rounded(columns)
        if not self.held:
            self.held = [(one[:0], two[:0]) for one, two in self._like]
        for layer in range(len(self.held)):
            keys, values = self.held[layer]
            self.held[layer] = (self._grown(keys, keep), self._grown(values, keep))
            on_cuda = keys.is_cuda
            del keys, values
            if on_cuda:
                torch.cuda.empty_cache()  # blocks of the old size hold nothing of the new one

    def _grown(self, held: Any, keep: int) -> Any:
        new = room((self.slots, held.shape[1], self.columns, held.shape[3]), held)
        width = min(held.shape[2], self.columns)
        if keep and len(held):
            new[:keep, :, :width] = held[:keep, :, :width]
        return new

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of one slot over another's."""
        for keys, values in self.held:
            keys[target, :, :length] = keys[source, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def swap(self, one: int, two: int, length: int) -> None:
        """Exchange the first `length` columns of two slots."""
        for keys, values in self.held:
            for held in (keys, values):
                kept = held[one, :, :length].clone()
                held[one, :, :length] = held[two, :, :length]
                held[two, :, :length] = kept

    def aim(self, slots: Sequence[int] | int, at: Any, width: int) -> None:
        """Set the slots of the next pass (a number: that many from 0 on) and the columns of its
        tokens, `at` [slots, tokens]; attention sees the first `width` columns."""
        if isinstance(slots, int):
            self._index = slice(0, slots)
            self._rows = torch.arange(slots, device=at.device)[:, None]
        else:
            self._index = torch.tensor(list(slots), device=at.device)
            self._rows = self._index[:, None]
        self._at, self._width = at, width

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Store the new tokens, return all columns in use; called by the attention."""
        keys, values = self.held[layer_idx]
        keys[self._rows, :, self._at] = key_states.transpose(1, 2)
        values[self._rows, :, self._at] = value_states.transpose(1, 2)
        return keys[self._index, :, : self._width], values[self._index, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the columns in use; positions and masks are given explicitly."""
        return self._width


def room(shape: tuple[int, ...], like: Any) -> Any:
    """Return zeros of this shape, with the dtype and on the device of `like`.

    On a CPU they are pages of their own, which go back to the system when a larger cache takes
    their place and are taken from it when they are first written to. The C library's allocator
    keeps blocks of this size: a cache of 2 GB that had grown slot by slot held 6.
    """
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or not size:
        return like.new_zeros(shape)
    return torch.frombuffer(mmap.mmap(-1, size), dtype=like.dtype).view(shape)


def rounded(columns: int) -> int:
    """Return how many columns are allocated for so many."""
    return -(-columns // CHUNK) * CHUNK


def common(one: Sequence[int], two: Sequence[int]) -> int:
    """Return the length of the longest common prefix."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
