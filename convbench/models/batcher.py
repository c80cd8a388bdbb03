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

from convbench.models.generation import Generation, fail, succeed
from convbench.models.last import Last
from convbench.models.sampler import draw, log_probs
from convbench.models.slots import SlotCache, common, rounded

PASS_TOKENS = 4096
"""Most prompt tokens, padding counted, that are read in one pass."""
WAIT_STEPS = 6
"""Steps after which waiting calls join even if they are few."""
IDLE = 1.125
"""Most slots that a step reads, over the slots of rows that it is for."""
KEPT = 64
"""Steps for which an ended row's slot is left to its conversation's next turn, while the cache can
grow instead."""
SOON = 8
"""Steps for which it is left where the cache cannot grow, as long as other rows run: a next turn
that nobody else has to write comes back within few."""
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
        self.last = Last(self.model)
        self.held: list[Generation | None] = []
        self.named: dict[object, list[Generation]] = {}
        self.active = 0
        self.waited = 0
        self.wanted = 0
        self.clock = 0

    @property
    def idle(self) -> bool:
        """True where there is nothing to do."""
        return not self.active and not self.waiting

    def rows(self) -> list[Generation]:
        """Return all rows that somebody waits for."""
        return [row for row in self.held if row is not None and row.active] + self.waiting

    def turn(self) -> None:
        """Let rows join, read their prompts, make one step."""
        enough = len(self.waiting) * 8 >= self.active or self.waited >= WAIT_STEPS
        if self.waiting and enough:
            self.waited = 0
            self._join()
        if self.active:
            self._step()
            self.waited += 1

    def _slots(self, columns: int) -> int:
        """Return how many slots of so many columns the memory holds; one, however long it is."""
        return max(1, min(self.most, self.memory // (self.cache.token_bytes * rounded(columns))))

    # joining

    def _join(self) -> None:
        """Give waiting rows slots and read their prompts; rows that begin like one of this very
        group come after it, and copy."""
        self.waiting = [row for row in self.waiting if not row.done.cancelled()]
        while group := self._group():
            group.sort(key=lambda row: row.prompt - row.cached)
            while group and not self.owner.closed:
                longest = group[-1].prompt - group[-1].cached
                count = max(1, PASS_TOKENS // longest)
                self._read(group[-count:])
                del group[-count:]
            if group:
                return
            self._leave()

    def _group(self) -> list[Generation]:
        """Return rows that got slots now."""
        group: list[Generation] = []
        fresh: set[object] = set()
        left: list[Generation] = []
        self.wanted = self.active + len(self.waiting)
        for row in sorted(self.waiting, key=self._comes_new):  # before their slots are taken
            later = fresh.intersection(row.alike) and self._donor(row) is None
            if later or not self._seat(row):
                left.append(row)
                continue
            group.append(row)
            fresh.update(row.names)
        self.waiting = left
        return group

    def _comes_new(self, row: Generation) -> bool:
        """Return whether no slot waits for this row with the turn before it."""
        before = self.named.get(row.alike[0], ()) if row.alike else ()
        return all(one.active for one in before)

    def _seat(self, row: Generation) -> bool:
        """Give a row a slot with as much of its beginning as there is; False for no room."""
        if not self._roomy(row.prompt + row.limit):
            return False
        donor = self._donor(row)
        own = donor is not None and not donor.active and row.alike[:1] == donor.names[:1]
        slot = donor.slot if donor is not None and own else self._free(donor)
        if slot is None:
            return False
        if donor is not None:
            row.cached = self._shared(row, donor)
            if slot != donor.slot:
                self.cache.copy(donor.slot, slot, row.cached)
        self._evict(slot)
        row.slot, row.active = slot, True
        self.held[slot] = row
        self.active += 1
        for name in row.names:
            self.named.setdefault(name, []).append(row)
        return True

    def _roomy(self, columns: int) -> bool:
        """Return whether a row of so many columns fits; the cache grows where it must."""
        if columns <= self.cache.columns:
            return True
        slots = self._slots(columns)
        if self.active >= slots and self.active:
            return False
        if len(self.held) > slots:
            self._pack()
            for slot in range(slots, len(self.held)):
                self._evict(slot)
            del self.held[slots:]
        self.cache.resize(min(slots, self.cache.slots), columns, len(self.held))
        return True

    def _donor(self, row: Generation) -> Generation | None:
        """Return the row whose slot holds the longest beginning of this one's prompt."""
        for name in row.alike:
            rows = [one for one in self.named.get(name, ())[-8:] if one.cached]
            if rows:
                return max(rows, key=lambda one: (self._shared(row, one), not one.active))
        return None

    def _shared(self, row: Generation, donor: Generation) -> int:
        return min(common(row.tokens, donor.tokens), donor.cached, row.prompt - 1)

    def _free(self, donor: Generation | None) -> int | None:
        """Return an empty slot, one whose row ended long ago, a new one, or that of the row that
        ended longest ago; None where its next turn may still come soon."""
        for slot, held in enumerate(self.held):
            if held is None:
                return slot
        parked = [row for row in self.held if row and not row.active and row is not donor]
        oldest = min(parked, key=lambda row: row.parked, default=None)
        if oldest is not None and self.clock - oldest.parked > KEPT:
            return oldest.slot
        if len(self.held) < self.cache.slots or self._grow():
            self.held.append(None)
            return len(self.held) - 1
        if oldest is not None:
            coming = self.active and self.clock - oldest.parked <= SOON
            return None if coming else oldest.slot
        return donor.slot if donor is not None and not donor.active else None

    def _grow(self) -> bool:
        """Make slots for the rows that wait, some at a time since all that is held is copied; False
        where the memory holds no more."""
        more = self.cache.slots + max(1, self.cache.slots // 8)
        slots = min(max(self.wanted, more), self._slots(self.cache.columns))
        if slots <= self.cache.slots:
            return False
        self.cache.resize(slots, self.cache.columns, len(self.held))
        return True

    def _evict(self, slot: int) -> None:
        row = self.held[slot]
        if row is None:
            return
        self.held[slot] = None
        for name in row.names:
            rows = self.named[name]
            rows.remove(row)
            if not rows:
                del self.named[name]

    def _pack(self) -> None:
        """Bring active rows down to the first slots, so that steps read no others; ended rows go up
        and keep what their conversation's next turn begins with."""
        low = 0
        for slot in range(len(self.held) - 1, -1, -1):
            row = self.held[slot]
            if row is None or not row.active:
                continue
            while low < slot and (there := self.held[low]) is not None and there.active:
                low += 1
            if low >= slot:
                return
            there = self.held[low]
            if there is None:
                self.cache.copy(slot, low, row.cached)
            else:
                self.cache.swap(slot, low, max(row.cached, there.cached))
                there.slot = slot
            self.held[low], self.held[slot], row.slot = row, there, low

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
        """Read the last token of every active row and draw the next; others below them idle
        along."""
        if self._top() > IDLE * self.active + 1:
            self._pack()
        held = self.held[: self._top()]
        rows = [row for row in held if row is not None and row.active]
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

    def _top(self) -> int:
        """Return the number of slots up to the last active row's."""
        return 1 + max(row.slot for row in self.held if row is not None and row.active)

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
        """End rows that are over; their slots keep what was read."""
        over = [row for row in self.held if row is not None and row.active and row.over]
        self.clock += 1
        for row in over:
            row.active, row.parked = False, self.clock
        self.active -= len(over)
        if over:
            self.owner.tell(succeed, [row.done for row in over])
