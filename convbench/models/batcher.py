"""Continuous batching: calls join and leave a running batch, in a thread of its own.

A call's keys and values stay in their slot after it ended, until the slot is needed: the next
turn of the conversation reads only what is new, and calls that begin alike share the beginning.
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

from convbench.models.kv_slots import Last, Seats, SlotCache
from convbench.models.sampling import Generation, draw, fail, log_probs, succeed

PASS_TOKENS = 4096
"""Most prompt tokens, padding counted, that are read in one pass."""
WAIT_STEPS = 6
"""Steps after which waiting calls join even if they are few."""
IDLE = 1.125
"""Most slots that a step reads, over the slots of rows that it is for."""
LOADING_S = 3.0
"""Seconds for which the end waits for weights."""
MATES_S = 0.002
"""Seconds for which the first call after a rest waits for others: conversations whose turns ended
in one step come back one after the other."""


class Batcher:
    """Runs one model: `load` is called in the thread and gives it; then rows run.

    `memory(model)` gives the bytes that the cache may take.
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
        self._batch: Batch | None = None
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # for a loop that ended before

    def submit(self, row: Generation) -> None:
        """Queue a row; its future is set when it is done."""
        if self._failed is not None:
            row.done.set_exception(self._failed)
            return
        self._incoming.put(row)

    def close(self) -> None:
        """Stop after the pass that runs now, and let weights and cache go.

        It is waited for however long it takes: an interpreter that ends while torch computes in
        another thread aborts. Weights that are still being fetched are not waited for.
        """
        self.closed = True
        self._incoming.put(None)
        self._thread.join(LOADING_S if self.model is None else None)
        atexit.unregister(self.close)
        self.model = self._batch = None

    def _run(self) -> None:
        try:
            self.model = self._load()
            with torch.inference_mode():
                batch = self._batch = Batch(self, self._memory(self.model), self._most)
        except Exception as error:  # noqa: BLE001
            # whatever loading raises belongs to the one who waits for it
            self.tell(fail, [self.ready], error)
            return
        self.tell(succeed, [self.ready])
        try:
            with torch.inference_mode():
                while not self.closed:
                    self._take(batch)
                    batch.turn()
        except Exception as error:  # noqa: BLE001
            # e.g. out of memory: every call gets it, none hangs
            self._failed = error
            self._take(batch, block=False)
            self.tell(fail, [row.done for row in batch.rows()], error)

    def _take(self, batch: Batch, *, block: bool | None = None) -> None:
        """Move what came to the batch; wait where there is nothing else to do."""
        rested = block = batch.idle if block is None else block
        while True:
            try:
                row = self._incoming.get(rested, None if block else MATES_S)
            except queue.Empty:
                return
            if row is not None:
                batch.waiting.append(row)
            block = False

    def tell(self, function: Callable[..., None], *args: Any) -> None:
        """Call in the loop; a loop that is closed has nobody who waits."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)


@dataclass
class Batch:
    """The rows of a batcher and their slots; used in its thread only."""

    owner: Batcher
    memory: int
    most: int
    waiting: list[Generation] = field(default_factory=list)
    read: int = 0
    """Tokens that went through the model so far."""

    def __post_init__(self) -> None:
        self.model = self.owner.model
        self.device = self.model.device
        past = DynamicCache()
        probe = torch.zeros((1, 1), dtype=torch.long, device=self.device)
        self.model(input_ids=probe, past_key_values=past, use_cache=True)
        self.cache = SlotCache(past)
        self.cache.resize(1, 1, 0)
        self.seats = Seats(self.cache, self.memory, self.most)
        self.last = Last(self.model)
        self.waited = 0

    @property
    def idle(self) -> bool:
        """True where there is nothing to do."""
        return not self.seats.active and not self.waiting

    def rows(self) -> list[Generation]:
        """Return all rows that somebody waits for."""
        return self.seats.rows() + self.waiting

    def turn(self) -> None:
        """Let rows join, read their prompts, make one step."""
        enough = len(self.waiting) * 8 >= self.seats.active or self.waited >= WAIT_STEPS
        if self.waiting and enough:
            self.waited = 0
            self._join()
        if self.seats.active:
            self._step()
            self.waited += 1

    # joining

    def _join(self) -> None:
        """Give waiting rows slots and read their prompts; rows that begin like one of this very
        group come after it, and copy."""
        self.waiting = [row for row in self.waiting if not row.done.cancelled()]
        while True:
            group, self.waiting = self.seats.seat(self.waiting)
            if not group:
                return
            group.sort(key=lambda row: row.prompt - row.cached)
            while group and not self.owner.closed:
                longest = group[-1].prompt - group[-1].cached
                count = max(1, PASS_TOKENS // longest)
                self._read(group[-count:])
                del group[-count:]
            if group:
                return
            self._leave()

    # running

    def _read(self, group: list[Generation]) -> None:
        """Read the rest of prompts [rows, longest rest], padded on the right, and draw."""
        while group:
            most = max(1, PASS_TOKENS // len(group))
            parts = [row.tokens[row.cached : min(row.prompt, row.cached + most)] for row in group]
            ids = torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(part) for part in parts], batch_first=True
            ).to(self.device)
            starts = torch.tensor([row.cached for row in group], device=self.device)
            ends = torch.tensor([len(part) - 1 for part in parts], device=self.device)
            logits = self._pass([row.slot for row in group], ids, starts, ends)
            for row, part in zip(group, parts, strict=True):
                row.cached += len(part)
                self.read += len(part)
            whole = [i for i, row in enumerate(group) if row.cached >= row.prompt]
            if whole:
                self._draw([group[i] for i in whole], logits[whole])
            group = [row for row in group if row.cached < row.prompt]

    def _step(self) -> None:
        """Read the last token of every active row and draw the next; others below them idle along,
        behind what they hold."""
        held = self.seats.low(IDLE)
        rows = self.seats.rows()
        last = [row.tokens[-1] if row else 0 for row in held]
        starts = [row.cached if row else 0 for row in held]
        ids = torch.tensor(last, device=self.device)[:, None]
        at = torch.tensor(starts, device=self.device).clamp(max=self.cache.columns - 1)
        logits = self._pass(len(held), ids, at, None)
        for row in rows:
            row.cached += 1
        self.read += len(rows)
        self._draw(rows, logits[[row.slot for row in rows]])
        self._leave()

    def _pass(self, slots: list[int] | int, ids: Any, starts: Any, ends: Any) -> Any:
        """Run the model over ids [rows, tokens] that go to columns from `starts` on.

        Returns logits [rows, vocabulary] at each row's token `ends` (None: its only token).
        """
        at = starts[:, None] + torch.arange(ids.shape[1], device=self.device)
        real = starts if ends is None else starts + ends
        width = int(real.max()) + 1
        self.cache.aim(slots, at.clamp(max=self.cache.columns - 1), width)
        columns = torch.arange(width, device=self.device)
        with self.last.of(ends):
            logits = self.model(
                input_ids=ids,
                position_ids=at,
                attention_mask=(columns <= at[:, :, None])[:, None],
                past_key_values=self.cache,
                use_cache=True,
            ).logits
        return logits[:, -1]

    def _draw(self, rows: list[Generation], logits: Any) -> None:
        samplings = [row.sampling for row in rows]
        uniforms = [row.stream.next() for row in rows]
        drawn = draw(logits, samplings, uniforms, self.owner.top_k)
        probs = log_probs(logits, samplings, drawn, self.owner.top_k)
        for row, token, told in zip(rows, drawn, probs, strict=True):
            row.tokens.append(token)
            row.probs += told
            row.ended = token in self.owner.ends

    def _leave(self) -> None:
        """Tell those whose rows are over."""
        over = self.seats.leave()
        if over:
            self.owner.tell(succeed, [row.done for row in over])
