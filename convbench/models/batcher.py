"""Continuous batching: calls join and leave a running batch, in a thread of its own.

A call's keys and values stay in their slot after it ended, until the slot is needed: the next turn
of the conversation reads only its new tokens, and calls with a common prefix share it.
"""

from __future__ import annotations

import asyncio
import atexit
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from convbench.models.kv_slots import LastTokenLogits, SlotCache, SlotTable
from convbench.models.sampling import (
    Generation,
    draw_tokens,
    fail_futures,
    resolve_futures,
)

PASS_TOKENS = 4096
"""Most prompt tokens that are read in one pass, padding included."""
WAIT_STEPS = 6
"""Steps after which waiting calls join even if they are few."""
IDLE = 1.125
"""Largest ratio of slots that a step reads to slots of active rows."""
LOADING_S = 3.0
"""Seconds that closing waits for weights that are still loading."""
MATES_S = 0.002
"""Seconds that the first call after a rest waits for others: conversations whose turns ended in
one step return one after the other."""


class Batcher:
    """Runs one model in a thread of its own, which calls `load` to get it and then runs the rows.

    `memory(model)` returns the bytes that the cache may take, and `most` is the most rows at once.
    `ready` is set in `loop` once the model is loaded, or gets the error of loading.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        *,
        loop: asyncio.AbstractEventLoop,
        most: int,
        memory: Callable[[Any], int],
    ) -> None:
        self.ready: asyncio.Future[None] = loop.create_future()
        self.model: Any = None
        self.ends: frozenset[int] = frozenset()
        self.top_k: int | None = None
        self._load, self._loop, self._memory, self._most = load, loop, memory, most
        self._incoming: queue.SimpleQueue[Generation | None] = queue.SimpleQueue()
        self.closed = False
        self._failed: Exception | None = None
        self._batch: RunningBatch | None = None
        self._thread = threading.Thread(target=self._run_loop, name="batcher", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # for a loop that ended before

    def submit(self, row: Generation) -> None:
        """Queue a row and return at once; its future `done` is set when the row ends.

        If the batch failed before, the future gets that error instead.
        """
        if self._failed is not None:
            row.done.set_exception(self._failed)
            return
        self._incoming.put(row)

    def close(self) -> None:
        """Stop the thread after the current pass, and release weights and cache.

        This waits however long the pass takes: an interpreter that ends while torch computes in
        another thread aborts. It waits at most 3 s for weights that are still loading. The futures
        of rows that have not ended are left as they are.
        """
        self.closed = True
        self._incoming.put(None)
        self._thread.join(LOADING_S if self.model is None else None)
        atexit.unregister(self.close)
        self.model = self._batch = None

    def _run_loop(self) -> None:
        try:
            self.model = self._load()
            with torch.inference_mode():
                batch = self._batch = RunningBatch(self, self._memory(self.model), self._most)
        except Exception as error:  # noqa: BLE001
            # whatever loading raises is raised again where the model is awaited
            self.call_in_loop(fail_futures, [self.ready], error)
            return
        self.call_in_loop(resolve_futures, [self.ready])
        try:
            with torch.inference_mode():
                while not self.closed:
                    self._take_rows(batch)
                    batch.run_round()
        except Exception as error:  # noqa: BLE001
            # e.g. out of memory: every call gets the error, none hangs
            self._failed = error
            self._take_rows(batch, block=False)
            self.call_in_loop(fail_futures, [row.done for row in batch.pending_rows()], error)

    def _take_rows(self, batch: RunningBatch, *, block: bool | None = None) -> None:
        """Move queued rows to the batch; wait for one if there is nothing else to do."""
        rested = block = batch.is_idle if block is None else block
        while True:
            try:
                row = self._incoming.get(rested, None if block else MATES_S)
            except queue.Empty:
                return
            if row is not None:
                batch.waiting.append(row)
            block = False

    def call_in_loop(self, function: Callable[..., None], *args: Any) -> None:
        """Schedule a function in the event loop and return at once; do nothing if the loop is
        closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)


@dataclass
class RunningBatch:
    """The rows of a batcher and their slots; used in its thread only."""

    owner: Batcher
    memory: int
    most: int
    waiting: list[Generation] = field(default_factory=list)
    read: int = 0
    """Tokens that the model has read so far."""

    def __post_init__(self) -> None:
        self.model = self.owner.model
        self.device = self.model.device
        past = DynamicCache()
        probe = torch.zeros((1, 1), dtype=torch.long, device=self.device)
        self.model(input_ids=probe, past_key_values=past, use_cache=True)
        self.cache = SlotCache(past)
        self.cache.resize(1, 1, 0)
        self.slot_table = SlotTable(self.cache, self.memory, self.most)
        self.last = LastTokenLogits(self.model)
        self.waited = 0

    @property
    def is_idle(self) -> bool:
        """Return True if no row is active and none waits."""
        return not self.slot_table.active and not self.waiting

    def pending_rows(self) -> list[Generation]:
        """Return the active rows, then the waiting ones, as a new list."""
        return self.slot_table.active_rows() + self.waiting

    def run_round(self) -> None:
        """Let waiting rows join and read their prompts, then draw one token for each active row.

        Rows join once they are an eighth of the active ones, or after six steps. Without any row
        nothing is done.
        """
        enough = len(self.waiting) * 8 >= self.slot_table.active or self.waited >= WAIT_STEPS
        if self.waiting and enough:
            self.waited = 0
            self._admit_rows()
        if self.slot_table.active:
            self._decode_step()
            self.waited += 1

    # joining

    def _admit_rows(self) -> None:
        """Give waiting rows slots and read their prompts; a row that shares a prefix with one of
        the same group joins after it and copies the prefix."""
        self.waiting = [row for row in self.waiting if not row.done.cancelled()]
        while True:
            group, self.waiting = self.slot_table.admit_rows(self.waiting)
            if not group:
                return
            group.sort(key=lambda row: row.prompt - row.cached)
            while group and not self.owner.closed:
                longest = group[-1].prompt - group[-1].cached
                count = max(1, PASS_TOKENS // longest)
                self._read_prompts(group[-count:])
                del group[-count:]
            if group:
                return
            self._finish_rows()

    # running

    def _read_prompts(self, group: list[Generation]) -> None:
        """Read the rest of prompts [rows, longest rest], padded on the right, and draw a token for
        each complete one."""
        while group:
            most = max(1, PASS_TOKENS // len(group))
            parts = [row.tokens[row.cached : min(row.prompt, row.cached + most)] for row in group]
            ids = torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(part) for part in parts], batch_first=True
            ).to(self.device)
            starts = torch.tensor([row.cached for row in group], device=self.device)
            ends = torch.tensor([len(part) - 1 for part in parts], device=self.device)
            logits = self._run_model([row.slot for row in group], ids, starts, ends)
            for row, part in zip(group, parts, strict=True):
                row.cached += len(part)
                self.read += len(part)
            complete = [i for i, row in enumerate(group) if row.cached >= row.prompt]
            if complete:
                self._draw_tokens([group[i] for i in complete], logits[complete])
            group = [row for row in group if row.cached < row.prompt]

    def _decode_step(self) -> None:
        """Read the last token of every active row and draw the next one. Inactive rows in lower
        slots are computed too, without changing the columns that they hold."""
        held = self.slot_table.leading_rows(IDLE)
        rows = self.slot_table.active_rows()
        last = [row.tokens[-1] if row else 0 for row in held]
        starts = [row.cached if row else 0 for row in held]
        ids = torch.tensor(last, device=self.device)[:, None]
        at = torch.tensor(starts, device=self.device).clamp(max=self.cache.columns - 1)
        logits = self._run_model(len(held), ids, at, None)
        for row in rows:
            row.cached += 1
        self.read += len(rows)
        self._draw_tokens(rows, logits[[row.slot for row in rows]])
        self._finish_rows()

    def _run_model(self, slots: list[int] | int, ids: Any, starts: Any, ends: Any) -> Any:
        """Run the model over ids [rows, tokens] and store them in columns from `starts` on.

        Returns logits [rows, vocabulary] at each row's token `ends` (None: its only token).
        """
        at = starts[:, None] + torch.arange(ids.shape[1], device=self.device)
        real = starts if ends is None else starts + ends
        width = int(real.max()) + 1
        self.cache.select_slots(slots, at.clamp(max=self.cache.columns - 1), width)
        columns = torch.arange(width, device=self.device)
        with self.last.at_ends(ends):
            logits = self.model(
                input_ids=ids,
                position_ids=at,
                attention_mask=(columns <= at[:, :, None])[:, None],
                past_key_values=self.cache,
                use_cache=True,
            ).logits
        return logits[:, -1]

    def _draw_tokens(self, rows: list[Generation], logits: Any) -> None:
        samplings = [row.sampling for row in rows]
        uniforms = [row.stream.next_number() for row in rows]
        drawn = draw_tokens(logits, samplings, uniforms, self.owner.top_k)
        for row, token in zip(rows, drawn, strict=True):
            row.tokens.append(token)
            row.ended = token in self.owner.ends

    def _finish_rows(self) -> None:
        """End the rows that are over and set their futures."""
        over = self.slot_table.end_rows()
        if over:
            self.owner.call_in_loop(resolve_futures, [row.done for row in over])
