"""Compute log pi of logged tokens under the model that a training starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from convbench.learn.rows import Row

TOKENS = 2048
"""Most tokens of one forward pass, padding counted."""


def log_probs(
    model: Any, rows: Sequence[Row], *, bf16: bool = False, heat: float = 1.0
) -> list[list[float]]:
    """Return log pi of every token of every row, shape (tokens,) a row, 0 where masked and for the
    first token; at a sampling temperature. The model's training mode is restored."""
    training = model.training
    model.eval()
    found: list[list[float]] = [[] for _ in rows]
    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        for places in _batches(rows):
            picked = _picked(model, [rows[i] for i in places], heat)
            for place, values in zip(places, picked, strict=True):
                found[place] = [0.0, *values[: len(rows[place].tokens.ids) - 1]]
    model.train(training)
    return found


def _batches(rows: Sequence[Row]) -> Iterator[list[int]]:
    """Yield batches of indices of rows of similar lengths."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens.ids))
    batch: list[int] = []
    for place in order:
        if batch and (len(batch) + 1) * len(rows[place].tokens.ids) > TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _picked(model: Any, rows: Sequence[Row], heat: float) -> list[list[float]]:
    """Return log pi of every token but the first, shape (rows, longest - 1)."""
    ids, mask, real = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(part) for part in parts], batch_first=True)
        for parts in (
            [row.tokens.ids for row in rows],
            [row.tokens.mask for row in rows],
            [[1] * len(row.tokens.ids) for row in rows],
        )
    )
    ids, mask = ids.to(model.device), mask.to(model.device)
    logits = model(input_ids=ids, attention_mask=real.to(model.device), use_cache=False).logits
    wide = logits[:, :-1] if logits.dtype == torch.float64 else logits[:, :-1].float()
    taken = (wide / heat).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return taken.masked_fill(mask[:, 1:] == 0, 0).double().tolist()  # type: ignore[no-any-return]
