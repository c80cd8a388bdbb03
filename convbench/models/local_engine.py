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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicCache

from convbench.schema import Sampling

PASS_TOKENS = 4096
"""Most prompt tokens that are read in one pass, padding included."""
CHUNK, ROWS = 256, 8
"""Columns and rows of the cache are allocated in multiples of these numbers."""
LATEST = 6
"""Steps after which waiting calls join even if they are few: each joining costs a pass."""
COMPANY_S = 0.005
"""Seconds that an idle engine waits for company after a first call."""
LOADING_S = 3.0
"""Seconds that closing waits for weights that are still loading."""


@dataclass(eq=False)
class Generation:
    """One call: its prompt, then its reply as it grows."""

    tokens: list[int]
    """Token ids of prompt and reply so far."""
    limit: int
    """Most tokens of the reply."""
    sampling: Sampling
    uniforms: np.random.Generator
    """Its own random numbers."""
    done: asyncio.Future[None]
    """Set in the event loop when the reply is complete."""
    prompt: int = field(init=False)
    """How many tokens are the prompt."""
    row: int = -1
    read: int = 0
    """Tokens whose keys and values are in the row."""
    ended: bool = False
    """True if the model ended the reply itself."""

    def __post_init__(self) -> None:
        self.prompt = len(self.tokens)

    @property
    def is_over(self) -> bool:
        """Return True if the model ended the reply, it has `limit` tokens, or it was cancelled."""
        return self.ended or len(self.tokens) - self.prompt >= self.limit or self.done.cancelled()


def uniforms_of(seed: int | None, key: str) -> np.random.Generator:
    """Return the random numbers of a call, a pure function of its seed and key."""
    digest = hashlib.sha256(f"{seed}|{key}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))


def draw_tokens(
    logits: Any, samplings: Sequence[Sampling], uniforms: Sequence[float], top_k: int | None
) -> list[int]:
    """Return one token id for each row of logits [rows, vocabulary]; temperature 0 takes the
    likeliest.

    The cumulative distribution after temperature, `top_k` (None: off) and the row's top_p is
    inverted at the row's uniform number, so that a token depends on its own row only.
    """
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    hot = [row for row, sampling in enumerate(samplings) if sampling.temperature > 0]
    if not hot:
        return tokens
    heats = torch.tensor([samplings[row].temperature for row in hot], device=logits.device)
    scaled = logits[hot].float() / heats.clamp(min=1e-6)[:, None]
    nucleus = [samplings[row].top_p or 1.0 for row in hot]
    if top_k or min(nucleus) < 1:
        scaled = _restrict(scaled, torch.tensor(nucleus, device=logits.device), top_k)
    mass = (scaled - scaled.amax(dim=-1, keepdim=True)).exp_().double().cumsum(dim=-1)
    targets = torch.tensor([uniforms[row] for row in hot], dtype=torch.float64, device=mass.device)
    found = torch.searchsorted(mass, targets[:, None] * mass[:, -1:], right=True)
    last = (mass < mass[:, -1:]).sum(dim=-1, keepdim=True)  # where rounding puts it beyond all
    for row, token in zip(hot, torch.minimum(found, last)[:, 0].tolist(), strict=True):
        tokens[row] = token
    return tokens


def _restrict(scaled: Any, nucleus: Any, top_k: int | None) -> Any:
    """Return logits with -inf at all tokens but the `top_k` likeliest within the nucleus."""
    sorted_, order = scaled.sort(dim=-1, descending=True)
    chances = torch.softmax(sorted_, dim=-1, dtype=torch.float64)
    out = chances.cumsum(dim=-1) - chances >= nucleus[:, None]
    if top_k:
        out[:, top_k:] = True
    out[:, 0] = False
    return scaled.masked_fill(out.scatter(1, order, out), float("-inf"))


class RowCache(Cache):  # type: ignore[misc]
    """Keys and values [rows, heads, columns, head_dim] of each layer; a row begins at column 0.

    `select` says which rows the next pass of the model reads, and where its tokens go.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(layers=[])
        probe = DynamicCache()
        ids = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        model(input_ids=ids, past_key_values=probe, use_cache=True)
        self.held = [(layer.keys[:0], layer.values[:0]) for layer in probe.layers]
        self.rows = self.columns = 0

    @property
    def token_bytes(self) -> int:
        """Return the bytes of one token of one row."""
        pairs = [tensor for pair in self.held for tensor in pair]
        return int(sum(t.shape[1] * t.shape[3] * t.element_size() for t in pairs))

    def resize(self, rows: int, columns: int) -> None:
        """Change the numbers of rows and columns; what fits is kept."""
        keep, width = min(rows, self.rows), min(columns, self.columns)
        for layer, pair in enumerate(self.held):
            larger = []
            for old in pair:
                new = old.new_zeros((rows, old.shape[1], columns, old.shape[3]))
                new[:keep, :, :width] = old[:keep, :, :width]
                larger.append(new)
            self.held[layer] = (larger[0], larger[1])
        self.rows, self.columns = rows, columns

    def select(self, rows: Sequence[int] | slice, at: Any, width: int) -> None:
        """Set the rows of the next pass and the columns of its tokens, `at` [rows, tokens];
        attention reads the first `width` columns."""
        numbers = range(rows.stop) if isinstance(rows, slice) else rows
        self._numbers = torch.tensor(list(numbers), device=at.device)
        self._index = rows if isinstance(rows, slice) else self._numbers
        self._at, self._width = at.clamp(max=self.columns - 1), width

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Store keys and values [rows, heads, tokens, head_dim] of new tokens in one layer; return
        (keys, values) of the selected rows, each [rows, heads, width, head_dim]."""
        keys, values = self.held[layer_idx]
        keys[self._numbers[:, None], :, self._at] = key_states.transpose(1, 2)
        values[self._numbers[:, None], :, self._at] = value_states.transpose(1, 2)
        return keys[self._index, :, : self._width], values[self._index, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the columns that attention reads; positions and masks are passed explicitly."""
        return self._width


class Engine:
    """Runs one model in a thread of its own, which calls `load` to get it and then runs the calls.

    `memory(model)` returns the bytes that the cache may take, `most` is the most calls at once.
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
        self.cache: Any = None
        self.ends: frozenset[int] = frozenset()
        self.top_k: int | None = None
        self.tokens_read = 0
        """Tokens that the model has read so far."""
        self._load, self._loop, self._memory, self._most = load, loop, memory, most
        self._incoming: queue.SimpleQueue[Generation | None] = queue.SimpleQueue()
        self._waiting: list[Generation] = []
        self._active: list[Generation] = []
        self._kept: list[list[int]] = []
        """Tokens that each row holds."""
        self._freed: list[int] = []
        """When each row was freed, in steps; 0 for one that never was used."""
        self._steps = self._joined = 0
        self._ends_at: Any = None
        self._closed = False
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # for a loop that ended before

    def submit(self, call: Generation) -> None:
        """Queue a call and return at once; its future is set when it ends, or gets the error that
        ended the engine."""
        if self._failed is not None:
            call.done.set_exception(self._failed)
            return
        self._incoming.put(call)

    def close(self) -> None:
        """Stop the thread after the current pass, and release weights and cache.

        This waits however long the pass takes: an interpreter that ends while torch computes in
        another thread aborts. It waits at most 3 s for weights that are still loading.
        """
        self._closed = True
        self._incoming.put(None)
        self._thread.join(LOADING_S if self.model is None else None)
        atexit.unregister(self.close)
        on_cuda = self.model is not None and self.model.device.type == "cuda"
        self.model = self.cache = None
        if on_cuda:
            torch.cuda.empty_cache()

    def _run(self) -> None:
        try:
            self.model = self._load()
            self.model.get_output_embeddings().register_forward_pre_hook(self._last_hidden)
            with torch.inference_mode():
                self.cache = RowCache(self.model)
        except Exception as error:  # noqa: BLE001 - raised where the model is awaited
            self._tell([self.ready], error)
            return
        self._tell([self.ready], None)
        try:
            with torch.inference_mode():
                while not self._closed:
                    self._take_calls(block=not self._active and not self._waiting)
                    many = len(self._waiting) * 8 >= len(self._active)
                    if self._waiting and (many or self._steps - self._joined >= LATEST):
                        self._join()
                    if self._active:
                        self._step()
        except Exception as error:  # noqa: BLE001 - out of memory: no call hangs
            self._failed = error
            self._take_calls(block=False)
            self._tell([call.done for call in self._active + self._waiting], error)

    def _tell(self, futures: list[asyncio.Future[None]], error: Exception | None) -> None:
        """Set futures in the event loop; do nothing if it is closed."""

        def tell() -> None:
            for future in futures:
                if not future.done():
                    future.set_result(None) if error is None else future.set_exception(error)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell)

    def _take_calls(self, *, block: bool) -> None:
        """Move queued calls to those that wait; wait for one if there is nothing else to do."""
        while True:
            try:
                call = self._incoming.get(block)
            except queue.Empty:
                return
            if call is not None:
                self._waiting.append(call)
            if block:
                time.sleep(COMPANY_S)
            block = False

    # joining

    def _join(self) -> None:
        """Give waiting calls rows, in their order, and read their prompts."""
        self._joined = self._steps
        self._waiting = [call for call in self._waiting if not call.done.cancelled()]
        joining: list[Generation] = []
        while self._waiting and self._take_row(self._waiting[0]):
            joining.append(self._waiting.pop(0))
        joining.sort(key=lambda call: call.prompt - call.read)
        while joining and not self._closed:
            longest = joining[-1].prompt - joining[-1].read
            count = max(1, PASS_TOKENS // longest)
            self._read_prompts(joining[-count:])
            del joining[-count:]
        self._finish()

    def _take_row(self, call: Generation) -> bool:
        """Give a call a free row and return True; False if it must wait for room.

        A row whose tokens mostly begin as the prompt does is taken first, what is common is not
        read again; else the one that was freed longest ago.
        """
        columns = max(self.cache.columns, -(-(call.prompt + call.limit) // CHUNK) * CHUNK)
        capacity = self._memory(self.model) // (self.cache.token_bytes * columns)
        most = max(1, min(self._most, capacity))
        taken = {other.row for other in self._active}
        if len(taken) >= most or (taken and max(taken) >= most):
            return False
        wanted = len(self._active) + len(self._waiting)
        rows = min(most, max(self.cache.rows, -(-wanted // ROWS) * ROWS))
        if (rows, columns) != (self.cache.rows, self.cache.columns):
            self.cache.resize(rows, columns)
            self._kept = (self._kept + [[]] * rows)[:rows]
            self._freed = (self._freed + [0] * rows)[:rows]
        common = {row: common_prefix(self._kept[row], call.tokens) for row in range(rows)}

        def worth(row: int) -> tuple[int, int]:
            mostly = common[row] * 2 >= len(self._kept[row])
            return (common[row] if mostly else 0, -self._freed[row])

        call.row = max((row for row in range(rows) if row not in taken), key=worth)
        call.read = min(common[call.row], call.prompt - 1)
        self._kept[call.row] = call.tokens
        self._active.append(call)
        return True

    # running

    def _read_prompts(self, calls: list[Generation]) -> None:
        """Read the rest of prompts, padded on the right, and draw a token for each complete one."""
        while calls:
            most = max(1, PASS_TOKENS // len(calls))
            parts = [call.tokens[call.read : min(call.prompt, call.read + most)] for call in calls]
            ids = torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(part) for part in parts], batch_first=True
            )
            lengths = [len(part) for part in parts]
            rows = [call.row for call in calls]
            logits = self._forward(rows, ids, [call.read for call in calls], lengths)
            for call, length in zip(calls, lengths, strict=True):
                call.read += length
            complete = [i for i, call in enumerate(calls) if call.read >= call.prompt]
            if complete:
                self._draw([calls[i] for i in complete], logits[complete])
            calls = [call for call in calls if call.read < call.prompt]

    def _step(self) -> None:
        """Read the last token of every active call and draw the next one.

        Rows up to the last active one are read in place, with what free ones hold left as it is;
        if most of them are free, the active ones are copied together instead.
        """
        calls = sorted(self._active, key=lambda call: call.row)
        self._steps += 1
        top = calls[-1].row + 1
        if top > 2 * len(calls):
            rows: Sequence[int] | slice = [call.row for call in calls]
            ids, starts = [call.tokens[-1] for call in calls], [call.read for call in calls]
        else:
            rows, ids = slice(0, top), [0] * top
            starts = [len(kept) for kept in self._kept[:top]]  # beyond what a free row holds
            for call in calls:
                ids[call.row], starts[call.row] = call.tokens[-1], call.read
        logits = self._forward(rows, torch.tensor(ids)[:, None], starts, None)
        for call in calls:
            call.read += 1
        found = logits if isinstance(rows, list) else logits[[call.row for call in calls]]
        self._draw(calls, found)
        self._finish()

    def _forward(
        self,
        rows: Sequence[int] | slice,
        ids: Any,
        starts: Sequence[int],
        lengths: Sequence[int] | None,
    ) -> Any:
        """Run the model over ids [rows, tokens], stored in columns from `starts` on.

        Returns logits [rows, vocabulary] at the last of each row's `lengths` (None: one) tokens.
        """
        device = self.model.device
        first = torch.tensor(starts, device=device)
        at = first[:, None] + torch.arange(ids.shape[1], device=device)
        ends = zip(starts, lengths or [1] * len(starts), strict=True)
        width = min(self.cache.columns, max(start + length for start, length in ends))
        self.cache.select(rows, at, width)
        self._ends_at = None if lengths is None else torch.tensor(lengths, device=device) - 1
        columns = torch.arange(width, device=device)
        self.tokens_read += sum(lengths) if lengths else len(self._active)
        return self.model(
            input_ids=ids.to(device),
            position_ids=at,
            attention_mask=(columns <= at[:, :, None])[:, None],
            past_key_values=self.cache,
            use_cache=True,
        ).logits[:, -1]

    def _last_hidden(self, head: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Pass only the hidden states of each row's last token to the head."""
        if self._ends_at is None:
            return None
        hidden, *others = inputs
        numbers = torch.arange(len(hidden), device=hidden.device)
        return (hidden[numbers, self._ends_at][:, None], *others)

    def _draw(self, calls: Sequence[Generation], logits: Any) -> None:
        uniforms = [call.uniforms.random() for call in calls]
        drawn = draw_tokens(logits, [call.sampling for call in calls], uniforms, self.top_k)
        for call, token in zip(calls, drawn, strict=True):
            call.tokens.append(token)
            call.ended = token in self.ends

    def _finish(self) -> None:
        """End the calls that are over and set their futures; their rows keep what they hold."""
        over = [call for call in self._active if call.is_over]
        for call in over:
            self._kept[call.row] = call.tokens[: call.read]
            self._freed[call.row] = self._steps + 1
        if over:
            self._active = [call for call in self._active if not call.is_over]
            self._tell([call.done for call in over], None)


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens at their start two token lists have in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
