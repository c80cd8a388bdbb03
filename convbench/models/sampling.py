"""Draw the tokens of the calls in a batch, each row from a random stream of its own."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from convbench.schema import Sampling

BLOCK = 256
"""Tokens per block, whose probabilities are summed first."""


class UniformStream:
    """Uniform numbers in [0, 1) for one call, a pure function of seed and key."""

    def __init__(self, seed: int | None, key: str) -> None:
        digest = hashlib.sha256(f"{seed}|{key}".encode()).digest()
        self._rng = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
        self._drawn: list[float] = []

    def next_number(self) -> float:
        """Return the next uniform number in [0, 1) of the stream. It never ends."""
        if not self._drawn:
            self._drawn = self._rng.random(64)[::-1].tolist()
        return self._drawn.pop()


def draw_tokens(
    logits: Any, samplings: Sequence[Sampling], uniforms: Sequence[float], top_k: int | None
) -> list[int]:
    """Return one token id for each row of logits [rows, vocabulary]; temperature 0 takes the
    likeliest.

    The cumulative distribution after temperature, `top_k` (None or 0: off) and the row's top_p is
    inverted at the row's uniform number, so that a token depends on its own row only.
    """
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    hot = [row for row, sampling in enumerate(samplings) if sampling.temperature > 0]
    if not hot:
        return tokens
    if len(hot) < len(samplings):
        logits, samplings = logits[hot], [samplings[row] for row in hot]
    heat = torch.tensor([s.temperature for s in samplings], device=logits.device)
    scaled = logits.float() / heat.clamp(min=1e-6)[:, None]
    if top_k or any(s.top_p is not None and s.top_p < 1 for s in samplings):
        scaled = _restrict_logits(scaled, samplings, top_k)
    drawn = _invert_cdf(scaled, torch.tensor([uniforms[row] for row in hot], dtype=torch.float64))
    for row, token in zip(hot, drawn, strict=True):
        tokens[row] = token
    return tokens


def _invert_cdf(scaled: Any, uniforms: Any) -> list[int]:
    """Return the token of each row at which its cumulative probability exceeds its uniform number.

    Sums of blocks locate the block; only that block is summed token by token. Probabilities are
    float32, all sums over them float64.
    """
    rows, size = scaled.shape
    mass = (scaled - scaled.amax(dim=-1, keepdim=True)).exp_()
    mass = torch.nn.functional.pad(mass, (0, -size % BLOCK)).view(rows, -1, BLOCK)
    blocks = mass.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    target = uniforms.to(scaled.device) * blocks[:, -1]
    block = _first_above(blocks, target[:, None])
    before = torch.where(block > 0, blocks.gather(1, (block - 1).clamp(min=0)), 0.0)
    within = mass[torch.arange(rows, device=scaled.device), block[:, 0]].double().cumsum(dim=-1)
    position = _first_above(within, target[:, None] - before)
    drawn: list[int] = (block * BLOCK + position)[:, 0].tolist()
    return drawn


def _first_above(sums: Any, target: Any) -> Any:
    """Return the index [rows, 1] at which running sums [rows, n] exceed the target [rows, 1]; if
    rounding puts the target beyond all of them, the last index that adds anything."""
    last = (sums < sums[:, -1:]).sum(dim=-1, keepdim=True)
    return torch.minimum(torch.searchsorted(sums, target, right=True), last)


def _restrict_logits(scaled: Any, samplings: Sequence[Sampling], top_k: int | None) -> Any:
    """Return logits with -inf at all tokens but the `top_k` likeliest within the nucleus."""
    sorted_, order = scaled.sort(dim=-1, descending=True)
    chances = torch.softmax(sorted_, dim=-1, dtype=torch.float64)
    mass = chances.cumsum(dim=-1)
    nucleus = torch.tensor([s.top_p or 1.0 for s in samplings], device=scaled.device)
    before = mass - chances
    out = before >= nucleus[:, None]
    if top_k:
        out[:, top_k:] = True
    out[:, 0] = False
    return scaled.masked_fill(out.scatter(1, order, out), float("-inf"))


@dataclass(eq=False)
class Generation:
    """One call in the batch: its prompt, then its reply as it grows."""

    tokens: list[int]
    """Token ids of prompt and reply so far."""
    prompt: int
    """How many of them are the prompt."""
    limit: int
    """Most tokens of the reply."""
    sampling: Sampling
    """How to draw."""
    stream: UniformStream
    """Its random numbers."""
    done: asyncio.Future[None]
    """Set in the event loop when the reply is complete."""
    prefix_keys: tuple[object, ...] = ()
    """Keys of calls whose prefix this one may share, best first."""
    own_keys: tuple[object, ...] = ()
    """Keys under which later calls find this one."""
    cached: int = 0
    """Tokens whose keys and values are in the slot."""
    slot: int = -1
    """Its slot; -1 before it has one."""
    active: bool = False
    """True from getting a slot until its end."""
    ended: bool = False
    """True if the model ended the reply itself."""
    freed_at: int = 0
    """When it ended, in steps of the batch."""

    @property
    def reply_ids(self) -> list[int]:
        """Return the token ids of the reply so far as a new list, the end token included."""
        return self.tokens[self.prompt :]

    @property
    def is_over(self) -> bool:
        """Return True if the model ended the reply, it has `limit` tokens, or its future was
        cancelled."""
        return self.ended or len(self.tokens) - self.prompt >= self.limit or self.done.cancelled()


def resolve_futures(futures: list[asyncio.Future[None]]) -> None:
    """Set the result None of each future that is not done; call it in the event loop."""
    for future in futures:
        if not future.done():
            future.set_result(None)


def fail_futures(futures: list[asyncio.Future[None]], error: Exception) -> None:
    """Set an error on each future that is not done; call it in the event loop."""
    for future in futures:
        if not future.done():
            future.set_exception(error)
