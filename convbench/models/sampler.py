"""Draw tokens, each row from a random stream of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from convbench.schema import Sampling


class Stream:
    """Uniform numbers in [0, 1) for one call, a pure function of seed and key."""

    def __init__(self, seed: int | None, key: str) -> None:
        digest = hashlib.sha256(f"{seed}|{key}".encode()).digest()
        self._rng = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
        self._drawn: list[float] = []

    def next(self) -> float:
        """Return the next number; one is used for each token."""
        if not self._drawn:
            self._drawn = self._rng.random(64)[::-1].tolist()
        return self._drawn.pop()


def draw(
    logits: Any, samplings: Sequence[Sampling], uniforms: Sequence[float], top_k: int | None
) -> list[int]:
    """Return one token id a row: logits [rows, vocabulary], temperature 0 is greedy.

    Inverse of the cumulative distribution at the row's uniform number, so that a row's token
    depends on its own logits and stream only.
    """
    logits = logits.double()
    heat = torch.tensor([s.temperature for s in samplings], device=logits.device).double()
    scaled = logits / heat.clamp(min=1e-6)[:, None]
    if top_k or any(s.top_p is not None and s.top_p < 1 for s in samplings):
        scaled = _restrict(scaled, samplings, top_k)
    chances = torch.softmax(scaled, dim=-1).cumsum(dim=-1)
    target = torch.tensor(uniforms, device=logits.device).double() * chances[:, -1]
    drawn = torch.searchsorted(chances, target[:, None], right=True)[:, 0]
    drawn = drawn.clamp(max=logits.shape[1] - 1)
    best = logits.argmax(dim=-1)
    found: list[int] = torch.where(heat > 0, drawn, best).tolist()
    return found


def _restrict(scaled: Any, samplings: Sequence[Sampling], top_k: int | None) -> Any:
    """Set to -inf all but the `top_k` likeliest tokens and those outside the nucleus."""
    sorted_, order = scaled.sort(dim=-1, descending=True)
    mass = torch.softmax(sorted_, dim=-1).cumsum(dim=-1)
    nucleus = torch.tensor([s.top_p or 1.0 for s in samplings], device=scaled.device).double()
    before = mass - torch.softmax(sorted_, dim=-1)
    out = before >= nucleus[:, None]
    if top_k:
        out[:, top_k:] = True
    out[:, 0] = False
    return scaled.masked_fill(out.scatter(1, order, out), float("-inf"))
