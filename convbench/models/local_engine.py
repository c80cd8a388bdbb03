"""Continuous batching: calls join and leave a running batch, in a thread of its own.

Each call has a row of the key-value cache and a random stream of its own, so that neither order nor
company changes its reply. What an ended call has read stays in its row until the row is needed:
the next turn of a conversation, or the next sample of a question, reads only its new tokens.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicCache

from convbench.schema import Sampling

ROWS = 64
"""Rows of the cache: most calls at once."""
COLUMNS = 256
"""Columns of the cache, one a token, are allocated in multiples of this number."""
PASS_TOKENS = 4096
"""Most tokens of a prompt that are read in one pass."""


@dataclass(eq=False)
class _Call:
    """`tokens` are those of the prompt, `prompt` many, then of the reply, at most `limit`; `read`
    many have keys and values in `row`."""

    tokens: list[int]
    prompt: int
    limit: int
    sampling: Sampling
    uniforms: np.random.Generator
    done: Future[tuple[list[int], bool]] = field(default_factory=Future)
    row: int = -1
    read: int = 0


class Engine:
    """Runs one model in a thread of its own until it is closed."""

    def __init__(self, model: Any, ends: frozenset[int], top_k: int | None, memory: int) -> None:
        """`ends` are the token ids that end a reply, `top_k` restricts sampling (None: not).
        `memory` holds the cache: 64 rows of the longest call so far, or as many as fit."""
        self.model, self._ends, self._top_k, self._memory = model, ends, top_k, memory
        with torch.inference_mode():
            self._cache: Any = RowCache(model)
        self._incoming: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._waiting: deque[_Call] = deque()
        self._active: list[_Call] = []
        self._kept: list[list[int]] = [[]] * ROWS
        """Tokens that each free row holds."""
        self._freed = [0.0] * ROWS
        """When each row was freed."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # for a loop that ended before

    async def generate(
        self, prompt: Sequence[int], limit: int, sampling: Sampling, key: str
    ) -> tuple[list[int], bool]:
        """Return (token ids of the reply to a prompt, at most `limit`; True if the model ended it).
        Its random numbers are a pure function of seed and key. Raise what torch raises."""
        digest = hashlib.sha256(f"{sampling.seed}|{key}".encode()).digest()
        uniforms = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
        call = _Call(list(prompt), len(prompt), limit, sampling, uniforms)
        self._incoming.put(call)
        return await asyncio.wrap_future(call.done)

    def close(self) -> None:
        """Stop the thread after the current pass, however long (an interpreter that ends while
        torch computes in another thread aborts), and release weights and cache."""
        self._closed = True
        self._incoming.put(None)
        self._thread.join()
        atexit.unregister(self.close)
        self.model = self._cache = None
        torch.cuda.empty_cache()

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _run(self) -> None:
        while not self._closed:
            while not self._incoming.empty() or not (self._active or self._waiting):
                call = self._incoming.get()
                if call is None:
                    return
                self._waiting.append(call)
            try:
                self._join()
                if self._active:
                    self._step()
            except Exception as error:  # noqa: BLE001 - out of memory: no call hangs
                for call in (*self._active, *self._waiting):
                    if call.done.set_running_or_notify_cancel():
                        call.done.set_exception(error)
                self._active, self._waiting, self._kept = [], deque(), [[]] * ROWS

    def _join(self) -> None:
        """Give waiting calls rows, in their order, and read their prompts but for the last token,
        which the next step reads."""
        self._waiting = deque(call for call in self._waiting if not call.done.cancelled())
        while self._waiting and not self._closed and self._take_row(self._waiting[0]):
            call = self._waiting.popleft()
            self._active.append(call)
            while call.read < call.prompt - 1:
                part = call.tokens[call.read : min(call.prompt - 1, call.read + PASS_TOKENS)]
                self._forward([call.row], [part], [call.read])
                call.read += len(part)

    def _take_row(self, call: _Call) -> bool:
        """Give a call a free row, or return False if it must wait for one. It is the row that has
        most tokens in common with the beginning of the prompt, which are not read again; of
        several, the one that was freed longest ago."""
        needed = -(-(call.prompt + call.limit) // COLUMNS) * COLUMNS
        columns = max(self._cache.columns, needed)
        rows = max(1, min(ROWS, self._memory // (self._cache.token_bytes * columns)))
        taken = {other.row for other in self._active}
        free = [row for row in range(rows) if row not in taken]
        if not free or max(taken, default=0) >= rows:
            return False
        if columns > self._cache.columns:
            self._cache.resize(rows, columns)
        # commonprefix takes lists too
        common = [len(commonprefix((kept, call.tokens))) for kept in self._kept]  # noqa: RUF071
        call.row = max(free, key=lambda row: (common[row], -self._freed[row]))
        call.read = min(common[call.row], call.prompt - 1)
        return True

    def _step(self) -> None:
        """Read the last token of every active call, draw the next one, and end those that are over.
        Free rows between active ones are read too, in place, each one token beyond what it holds;
        where most are free, the active ones are copied together instead."""
        calls = {call.row: call for call in sorted(self._active, key=lambda call: call.row)}
        rows = list(range(min(calls), max(calls) + 1))
        if len(rows) > 2 * len(calls):
            rows = list(calls)
        ids = [[calls[row].tokens[-1] if row in calls else 0] for row in rows]
        starts = [calls[row].read if row in calls else len(self._kept[row]) for row in rows]
        logits = self._forward(rows, ids, starts)[[rows.index(row) for row in calls]]
        drawn = _draw(logits, list(calls.values()), self._top_k)
        for call, token in zip(calls.values(), drawn, strict=True):
            call.read += 1
            call.tokens.append(token)
            reply, ended = call.tokens[call.prompt :], token in self._ends
            if ended or len(reply) >= call.limit or call.done.cancelled():
                self._active.remove(call)
                self._kept[call.row] = call.tokens[: call.read]
                self._freed[call.row] = time.monotonic()
                if call.done.set_running_or_notify_cancel():
                    call.done.set_result((reply, ended))

    def _forward(self, rows: list[int], ids: list[list[int]], starts: list[int]) -> Any:
        """Run the model over ids [rows, tokens], stored in columns from `starts` on; return logits
        [rows, vocabulary] at the last token. Row numbers ascend."""
        device, count = self.model.device, len(ids[0])
        columns = torch.arange(max(starts) + count, device=device)
        at = torch.tensor(starts, device=device)[:, None] + columns[:count]
        numbers = torch.tensor(rows, device=device)
        follow = rows[-1] - rows[0] + 1 == len(rows)
        index = slice(rows[0], rows[-1] + 1) if follow else numbers
        self._cache.next = numbers, index, at, len(columns)
        return self.model(
            input_ids=torch.tensor(ids, device=device),
            position_ids=at,
            attention_mask=(columns <= at[:, :, None])[:, None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]


class RowCache(Cache):  # type: ignore[misc]
    """Keys and values [rows, heads, columns, head_dim] of each layer; a row begins at column 0."""

    next: tuple[Any, Any, Any, int]
    """Of the next pass: its rows, a tensor; the same as an index, which copies nothing if it is a
    slice; the columns of its tokens [rows, tokens]; how many columns attention reads."""

    def __init__(self, model: Any) -> None:
        super().__init__(layers=[])
        probe = DynamicCache()
        ids = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        model(input_ids=ids, past_key_values=probe, use_cache=True)
        self.held = [[layer.keys[:0], layer.values[:0]] for layer in probe.layers]
        self.columns = 0
        self.token_bytes = sum(
            t.nbytes for layer in probe.layers for t in (layer.keys, layer.values)
        )
        """Bytes of one token of one row."""

    def resize(self, rows: int, columns: int) -> None:
        """Change the numbers of rows and columns, layer by layer; what fits is kept."""
        for pair in self.held:
            for number, old in enumerate(pair):
                pair[number] = old.new_zeros((rows, old.shape[1], columns, old.shape[3]))
                pair[number][: len(old), :, : self.columns] = old[:rows, :, : self.columns]
        self.columns = columns

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Store keys and values [rows, heads, tokens, head_dim] of new tokens in one layer; return
        (keys, values) of the rows, each [rows, heads, width, head_dim]."""
        (keys, values), (rows, index, at, width) = self.held[layer_idx], self.next
        keys[rows[:, None], :, at] = key_states.transpose(1, 2)
        values[rows[:, None], :, at] = value_states.transpose(1, 2)
        return keys[index, :, :width], values[index, :, :width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the columns that attention reads; positions and masks are passed explicitly."""
        return self.next[3]


def _draw(logits: Any, calls: list[_Call], top_k: int | None) -> list[int]:
    """Return one token id for each call's row of logits [calls, vocabulary], the likeliest at
    temperature 0, else where the cumulative distribution (after temperature, top_k, top_p) reaches
    the call's own random number, so that a token depends on its own row only."""
    tokens = logits.argmax(dim=-1)
    hot = [row for row, call in enumerate(calls) if call.sampling.temperature > 0]
    if hot:
        samplings = [calls[row].sampling for row in hot]
        heats, nuclei = [s.temperature for s in samplings], [s.top_p or 1 for s in samplings]
        rows = heats, nuclei, [calls[row].uniforms.random() for row in hot]
        table = torch.tensor(rows, dtype=torch.float64, device=logits.device)
        heat, nucleus, uniform = table[..., None]
        chances = torch.softmax(logits[hot] / heat.float().clamp(min=1e-6), dim=-1)
        if top_k or nucleus.min() < 1:
            ordered, order = chances.sort(dim=-1, descending=True)
            before = ordered.cumsum(dim=-1, dtype=torch.float64) - ordered
            out = (before >= nucleus) & (nucleus < 1)  # else rounding could cut the tail
            if top_k:
                out[:, top_k:] = True
            chances = chances.masked_fill(out.scatter(1, order, out), 0)
        mass = chances.cumsum(dim=-1, dtype=torch.float64)
        tokens[hot] = torch.searchsorted(mass, uniform * mass[:, -1:])[:, 0]
    drawn: list[int] = tokens.tolist()
    return drawn


def cache_memory(model: Any, share: float | None) -> int:
    """Return the bytes for the cache of a loaded model: 2 GiB on a CPU, else 0.8 of what is free,
    or of what `share` of the device's memory (0 to 1) leaves; passes need the rest."""
    if model.device.type != "cuda":
        return 2 << 30
    free, total = torch.cuda.mem_get_info(model.device)
    return int(0.8 * min(free, total * (share or 1) - torch.cuda.memory_allocated(model.device)))
