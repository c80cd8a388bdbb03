"""A key-value cache of slots: sequences of unequal length join, grow and leave, and rows with a
common prefix share it.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache

from convbench.models.sampling import Generation

REST_STEPS = 64
"""Steps for which an ended row's slot is reserved for its conversation's next turn, while the cache
can grow instead."""
SOON = 8
"""The same if the cache cannot grow, while other rows run: a next turn that needs no other speaker
returns within a few steps."""


class SlotTable:
    """Assigns the slots of a cache, of `memory` bytes and `most` slots at most, to rows.

    Rows copy a common prefix, an ended row keeps its slot for its conversation's next turn until
    the slot is needed, and the cache grows up to its limits."""

    def __init__(self, cache: SlotCache, memory: int, most: int) -> None:
        self.cache = cache
        self.active = 0
        self._memory, self._most = memory, most
        self._slot_rows: list[Generation | None] = []
        self._rows_by_key: dict[object, list[Generation]] = {}
        self._demand = 0
        self._clock = 0

    def active_rows(self) -> list[Generation]:
        """Return the active rows as a new list, in the order of their slots; empty if none is
        active."""
        return [row for row in self._slot_rows if row is not None and row.active]

    def leading_rows(self, idle: float) -> list[Generation | None]:
        """Return one entry for each slot up to the last active row's: its row, active or ended, or
        None.

        If these are more than `idle` times the active rows, active rows move to lower slots first.
        At least one row must be active.
        """
        if self._slots_in_use() > idle * self.active + 1:
            self._compact_rows()
        return self._slot_rows[: self._slots_in_use()]

    def admit_rows(
        self, waiting: Sequence[Generation]
    ) -> tuple[list[Generation], list[Generation]]:
        """Give waiting rows slots; return (rows that got one, rows that keep waiting).

        Next turns of a conversation come first. A row waits for room, or for a row of the same
        group whose prefix it will copy. Admitted rows are active, with `slot` and `cached`, the
        tokens copied from another row, set.
        """
        group: list[Generation] = []
        fresh: set[object] = set()
        left: list[Generation] = []
        self._demand = self.active + len(waiting)
        for row in sorted(waiting, key=self._comes_new):  # next turns before their slots are taken
            later = fresh.intersection(row.prefix_keys) and self._find_donor(row) is None
            if later or not self._assign_slot(row):
                left.append(row)
                continue
            group.append(row)
            fresh.update(row.own_keys)
        return group, left

    def end_rows(self) -> list[Generation]:
        """Make the rows that are over inactive and return them in the order of their slots.

        Their slots keep their keys and values. Each call counts as one step.
        """
        over = [row for row in self.active_rows() if row.is_over]
        self._clock += 1
        for row in over:
            row.active, row.freed_at = False, self._clock
        self.active -= len(over)
        return over

    def _comes_new(self, row: Generation) -> bool:
        """Return True if no slot holds the ended previous turn of this row's conversation."""
        before = self._rows_by_key.get(row.prefix_keys[0], ()) if row.prefix_keys else ()
        return all(other.active for other in before)

    def _assign_slot(self, row: Generation) -> bool:
        """Give a row a slot with its longest available prefix; return False if there is no room."""
        if not self._ensure_columns(row.prompt + row.limit):
            return False
        donor = self._find_donor(row)
        own = donor is not None and not donor.active and row.prefix_keys[:1] == donor.own_keys[:1]
        slot = donor.slot if donor is not None and own else self._free_slot(donor)
        if slot is None:
            return False
        if donor is not None:
            row.cached = self._shared_length(row, donor)
            if slot != donor.slot:
                self.cache.copy_columns(donor.slot, slot, row.cached)
        self._evict_slot(slot)
        row.slot, row.active = slot, True
        self._slot_rows[slot] = row
        self.active += 1
        for name in row.own_keys:
            self._rows_by_key.setdefault(name, []).append(row)
        return True

    def _ensure_columns(self, columns: int) -> bool:
        """Return True if a row of so many columns fits, after growing the cache if necessary."""
        if columns <= self.cache.columns:
            return True
        slots = self._slots_for(columns)
        if self.active >= slots and self.active:
            return False
        if len(self._slot_rows) > slots:
            self._compact_rows()
            for slot in range(slots, len(self._slot_rows)):
                self._evict_slot(slot)
            del self._slot_rows[slots:]
        self.cache.resize(min(slots, self.cache.slots), columns, len(self._slot_rows))
        return True

    def _slots_for(self, columns: int) -> int:
        """Return how many slots of so many columns fit into the memory, at least one."""
        return max(
            1, min(self._most, self._memory // (self.cache.token_bytes * round_columns(columns)))
        )

    def _find_donor(self, row: Generation) -> Generation | None:
        """Return the row whose slot holds the longest prefix of this row's prompt; None without
        one."""
        for name in row.prefix_keys:
            rows = [
                candidate for candidate in self._rows_by_key.get(name, ())[-8:] if candidate.cached
            ]
            if rows:
                return max(
                    rows,
                    key=lambda candidate: (
                        self._shared_length(row, candidate),
                        not candidate.active,
                    ),
                )
        return None

    def _shared_length(self, row: Generation, donor: Generation) -> int:
        return min(common_prefix(row.tokens, donor.tokens), donor.cached, row.prompt - 1)

    def _free_slot(self, donor: Generation | None) -> int | None:
        """Return a slot to use: an empty one, one whose row ended long ago, a new one, or that of
        the row that ended longest ago; None if that row's next turn may come soon."""
        for slot, held in enumerate(self._slot_rows):
            if held is None:
                return slot
        ended_rows = [row for row in self._slot_rows if row and not row.active and row is not donor]
        oldest = min(ended_rows, key=lambda row: row.freed_at, default=None)
        if oldest is not None and self._clock - oldest.freed_at > REST_STEPS:
            return oldest.slot
        if len(self._slot_rows) < self.cache.slots or self._add_slots():
            self._slot_rows.append(None)
            return len(self._slot_rows) - 1
        if oldest is not None:
            coming = self.active and self._clock - oldest.freed_at <= SOON
            return None if coming else oldest.slot
        return donor.slot if donor is not None and not donor.active else None

    def _add_slots(self) -> bool:
        """Add slots for the waiting rows, several at once since growing copies the cache; return
        False if the memory holds no more."""
        more = self.cache.slots + max(1, self.cache.slots // 8)
        slots = min(max(self._demand, more), self._slots_for(self.cache.columns))
        if slots <= self.cache.slots:
            return False
        self.cache.resize(slots, self.cache.columns, len(self._slot_rows))
        return True

    def _evict_slot(self, slot: int) -> None:
        row = self._slot_rows[slot]
        if row is None:
            return
        self._slot_rows[slot] = None
        for name in row.own_keys:
            rows = self._rows_by_key[name]
            rows.remove(row)
            if not rows:
                del self._rows_by_key[name]

    def _compact_rows(self) -> None:
        """Move active rows to the lowest slots, so that steps read no others; ended rows move up
        and keep the prefix of their conversation's next turn."""
        low = 0
        for slot in range(len(self._slot_rows) - 1, -1, -1):
            row = self._slot_rows[slot]
            if row is None or not row.active:
                continue
            while low < slot and (occupant := self._slot_rows[low]) is not None and occupant.active:
                low += 1
            if low >= slot:
                return
            occupant = self._slot_rows[low]
            if occupant is None:
                self.cache.copy_columns(slot, low, row.cached)
            else:
                self.cache.swap_columns(slot, low, max(row.cached, occupant.cached))
                occupant.slot = slot
            self._slot_rows[low], self._slot_rows[slot], row.slot = row, occupant, low

    def _slots_in_use(self) -> int:
        """Return the number of slots up to the last active row's."""
        return 1 + self.active_rows()[-1].slot


class LastTokenLogits:
    """Makes the model compute logits at one token of each right-padded row: a hook passes only the
    hidden states of these tokens to the head."""

    def __init__(self, model: Any) -> None:
        self._ends: Any = None
        model.get_output_embeddings().register_forward_pre_hook(self._select_hidden)

    @contextmanager
    def at_ends(self, ends: Any) -> Iterator[None]:
        """Make the model compute logits [rows, 1, vocabulary] inside, at tokens `ends` [rows].

        With None they are computed at all tokens. Used with `with`; nothing is yielded.
        """
        self._ends = ends
        yield
        self._ends = None

    def _select_hidden(self, head: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self._ends is None:
            return None
        hidden, *others = inputs
        rows = torch.arange(len(hidden), device=hidden.device)
        return (hidden[rows, self._ends][:, None], *others)


CHUNK = 128
"""Columns are allocated in multiples of this number."""


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values [slots, heads, columns, head_dim] per layer; a slot's sequence starts at
    column 0. `select_slots` says which slots the next forward pass reads and where its tokens go.
    """

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
        """Return the bytes of one token in one slot: all layers, plus the largest layer once more.

        One layer is held twice while the cache grows.
        """
        sizes: list[int] = [
            sum(tensor.shape[1] * tensor.shape[3] * tensor.element_size() for tensor in pair)
            for pair in self._like
        ]
        return int(sum(sizes) + max(sizes))

    def resize(self, slots: int, columns: int, keep: int) -> None:
        """Resize the cache to `slots` and `columns` (rounded up to a multiple of 128), in place.

        The first `keep` slots keep their contents, as many columns as fit. Layers are resized one
        after the other, and each old layer is freed at once, so old and new exist together for one
        layer only.
        """
        self.slots, self.columns = slots, round_columns(columns)
        if not self.held:
            self.held = [(first[:0], second[:0]) for first, second in self._like]
        for layer in range(len(self.held)):
            keys, values = self.held[layer]
            self.held[layer] = (self._grow_tensor(keys, keep), self._grow_tensor(values, keep))
            on_cuda = keys.is_cuda
            del keys, values
            if on_cuda:
                torch.cuda.empty_cache()  # freed blocks of the old size do not fit the new one

    def _grow_tensor(self, held: Any, keep: int) -> Any:
        new = mmap_zeros((self.slots, held.shape[1], self.columns, held.shape[3]), held)
        width = min(held.shape[2], self.columns)
        if keep and len(held):
            new[:keep, :, :width] = held[:keep, :, :width]
        return new

    def copy_columns(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of slot `source` to slot `target`."""
        for keys, values in self.held:
            keys[target, :, :length] = keys[source, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def swap_columns(self, first: int, second: int, length: int) -> None:
        """Exchange the first `length` columns of two slots."""
        for keys, values in self.held:
            for held in (keys, values):
                saved = held[first, :, :length].clone()
                held[first, :, :length] = held[second, :, :length]
                held[second, :, :length] = saved

    def select_slots(self, slots: Sequence[int] | int, at: Any, width: int) -> None:
        """Set the slots of the next pass (an integer: that many from 0 on) and the columns of its
        tokens, `at` [slots, tokens]; attention reads the first `width` columns."""
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
        """Store keys and values [slots, heads, tokens, head_dim] of new tokens in one layer; called
        by the attention.

        Return (keys, values) of the slots that `select_slots` set, each [slots, heads, width,
        head_dim].
        """
        keys, values = self.held[layer_idx]
        keys[self._rows, :, self._at] = key_states.transpose(1, 2)
        values[self._rows, :, self._at] = value_states.transpose(1, 2)
        return keys[self._index, :, : self._width], values[self._index, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of columns set by the last `select_slots`, whatever the layer.

        Positions and masks are passed to the model explicitly.
        """
        return self._width


def mmap_zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Return zeros of this shape, with the dtype and on the device of `like`.

    On a CPU they are memory-mapped pages, which are allocated when first written and returned to
    the system when a larger cache replaces them. The C library's allocator keeps blocks of this
    size: a cache of 2 GB that had grown slot by slot held 6.
    """
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or not size:
        return like.new_zeros(shape)
    return torch.frombuffer(mmap.mmap(-1, size), dtype=like.dtype).view(shape)


def round_columns(columns: int) -> int:
    """Return a number of columns rounded up to a multiple of CHUNK."""
    return -(-columns // CHUNK) * CHUNK


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens at their start two token lists have in common, from 0 to the shorter
    length."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
