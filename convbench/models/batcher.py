"""Continuous batching: calls join and leave a running batch, in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from convbench.models.sampler import Stream, draw
from convbench.models.slots import SlotCache, per_token_bytes
from convbench.schema import Sampling

PREFILL_TOKENS = 16384
"""Most prompt tokens, padding counted, that are read in one pass."""
WAIT_STEPS = 8
"""Steps after which waiting calls join even if they are few."""


@dataclass(eq=False)
class Row:
    """One call: its prompt, then its reply as it grows."""

    prompt: list[int]
    """Token ids of the prompt."""
    limit: int
    """Most tokens of the reply."""
    sampling: Sampling
    """How to draw."""
    stream: Stream
    """Its random numbers."""
    done: asyncio.Future[None]
    """Set in the loop when the reply is whole."""
    reply: list[int] = field(default_factory=list)
    """Token ids so far, the end token included."""
    ended: bool = False
    """True where the model ended the reply itself."""

    @property
    def length(self) -> int:
        """Tokens in the cache before the next step."""
        return len(self.prompt) + len(self.reply) - 1

    @property
    def most(self) -> int:
        """Tokens it may come to."""
        return len(self.prompt) + self.limit


class Batcher:
    """Runs one model. `load` is called in the thread and gives the model; then rows run.

    `ends` are the ids that end a reply; `memory` bounds the cache in bytes.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        *,
        loop: asyncio.AbstractEventLoop,
        max_rows: int,
        memory: Callable[[Any], int],
    ) -> None:
        self.ready: asyncio.Future[None] = loop.create_future()
        self.model: Any = None
        self.ends: frozenset[int] = frozenset()
        self.top_k: int | None = None
        self._load, self._loop, self._memory = load, loop, memory
        self._max_rows = max_rows
        self._incoming: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._waiting: list[Row] = []
        self._active: list[Row] = []
        self._cache = SlotCache()
        self._bytes = 0
        self._waited = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, row: Row) -> None:
        """Queue a row; its future is set when it is done."""
        self._incoming.put(row)

    def close(self, timeout: float = 3.0) -> None:
        """Stop after the step that runs now; rows left are cancelled."""
        self._closed = True
        self._incoming.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self.model = self._load()
        except Exception as error:  # noqa: BLE001
            # whatever loading raises belongs to the one who waits for it
            self._tell(_fail, self.ready, error)
            return
        self._tell(_succeed, [self.ready])
        try:
            with torch.inference_mode():
                while not self._closed:
                    self._turn()
        except Exception as error:  # noqa: BLE001
            # e.g. out of memory: every call gets it, none hangs
            for row in (*self._active, *self._waiting):
                self._tell(_fail, row.done, error)

    def _turn(self) -> None:
        """Take what came, let rows join, make one step."""
        self._take(block=not self._active and not self._waiting)
        if self._waiting and self._joining():
            self._join()
        if self._active:
            self._step()
            self._waited += 1

    def _take(self, *, block: bool) -> None:
        while True:
            try:
                row = self._incoming.get(block)
            except queue.Empty:
                return
            if row is not None:
                self._waiting.append(row)
            block = False

    def _joining(self) -> bool:
        """Return whether waiting rows join now: prompts are read in groups, which is cheaper."""
        enough = len(self._waiting) * 8 >= len(self._active)
        return enough or self._waited >= WAIT_STEPS

    def _join(self) -> None:
        self._waited = 0
        self._waiting = [row for row in self._waiting if not row.done.cancelled()]
        self._waiting.sort(key=lambda row: len(row.prompt))
        while group := self._group():
            del self._waiting[: len(group)]
            self._read(group)

    def _group(self) -> list[Row]:
        """Return the next rows that fit: by number, by memory, by prompt tokens of one pass."""
        group: list[Row] = []
        most = max((row.most for row in self._active), default=0)
        for row in self._waiting:
            count = len(self._active) + len(group) + 1
            most = max(most, row.most)
            if group and len(row.prompt) * (len(group) + 1) > PREFILL_TOKENS:
                break
            if count > 1 and count > self._rows(most):
                break
            group.append(row)
        return group

    def _rows(self, columns: int) -> int:
        """Return how many rows of so many columns the memory holds."""
        if not self._bytes:
            return self._max_rows
        return max(1, min(self._max_rows, self._memory(self.model) // (self._bytes * columns)))

    def _read(self, group: list[Row]) -> None:
        """Read prompts [rows, longest], padded on the right, and draw their first tokens."""
        device = self.model.device
        longest = max(len(row.prompt) for row in group)
        ids = torch.zeros((len(group), longest), dtype=torch.long)
        for i, row in enumerate(group):
            ids[i, : len(row.prompt)] = torch.tensor(row.prompt)
        ends = torch.tensor([len(row.prompt) - 1 for row in group], device=device)
        kept, which = ends.unique(return_inverse=True)
        past = DynamicCache()
        logits = self.model(
            input_ids=ids.to(device), past_key_values=past, use_cache=True, logits_to_keep=kept
        ).logits
        self._bytes = self._bytes or per_token_bytes(past)
        columns = max(row.most for row in (*self._active, *group))
        rows = min(self._rows(columns), self._max_rows)
        first = len(self._active)
        self._cache.fit(past, max(rows, first + len(group)), columns, first)
        self._cache.fill(past, first, len(group))
        self._active += group
        picked = logits[torch.arange(len(group), device=device), which]
        self._draw(group, picked)
        self._leave()

    def _step(self) -> None:
        """Read the last token of every active row and draw the next."""
        device = self.model.device
        lengths = torch.tensor([row.length for row in self._active], device=device)
        last = torch.tensor([[row.reply[-1]] for row in self._active], device=device)
        self._cache.aim(lengths)
        width = torch.arange(int(lengths.max()) + 1, device=device)
        mask = (width[None, :] <= lengths[:, None])[:, None, None, :]
        logits = self.model(
            input_ids=last,
            position_ids=lengths[:, None],
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
        ).logits
        self._draw(self._active, logits[:, -1])
        self._leave()

    def _draw(self, rows: list[Row], logits: Any) -> None:
        samplings = [row.sampling for row in rows]
        uniforms = [row.stream.next() for row in rows]
        for row, token in zip(rows, draw(logits, samplings, uniforms, self.top_k), strict=True):
            row.reply.append(token)
            row.ended = token in self.ends

    def _leave(self) -> None:
        """Take finished and cancelled rows out; rows from the end fill their places."""
        rows = self._active
        out = [i for i, row in enumerate(rows) if _over(row)]
        if not out:
            return
        finished = [rows[i].done for i in out]
        keep = len(rows) - len(out)
        holes = [i for i in out if i < keep]
        gone = set(out)
        source = [i for i in range(keep, len(rows)) if i not in gone]
        for target, i in zip(holes, source, strict=True):
            rows[target] = rows[i]
        if holes:
            self._cache.move(source, holes)
        del rows[keep:]
        self._tell(_succeed, finished)

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        """Call in the loop; a loop that is closed has nobody who waits."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)


def _over(row: Row) -> bool:
    return row.ended or len(row.reply) >= row.limit or row.done.cancelled()


def _succeed(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
