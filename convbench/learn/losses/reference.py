"""Compute log pi of logged tokens under the model that a training starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from convbench.learn.rows import TrainingRow

TOKENS = 2048
"""Most tokens of one forward pass, padding counted."""


def log_probs(
    model: Any, rows: Sequence[TrainingRow], *, bf16: bool = False, temperature: float = 1.0
) -> list[list[float]]:
    """Return log pi of every token of every row, shape (tokens,) a row, 0 where masked and for the
    first token; at a sampling temperature. The model's training mode is restored."""
    training = model.training
    model.eval()
    by_row: list[list[float]] = [[] for _ in rows]
    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        for indices in _length_batches(rows):
            batch_values = _token_log_probs(model, [rows[i] for i in indices], temperature)
            for index, values in zip(indices, batch_values, strict=True):
                by_row[index] = [0.0, *values[: len(rows[index].tokens.ids) - 1]]
    model.train(training)
    return by_row


def _length_batches(rows: Sequence[TrainingRow]) -> Iterator[list[int]]:
    """Yield batches of indices of rows of similar lengths."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens.ids))
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * len(rows[index].tokens.ids) > TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _token_log_probs(
    model: Any, rows: Sequence[TrainingRow], temperature: float
) -> list[list[float]]:
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
    full_logits = logits[:, :-1] if logits.dtype == torch.float64 else logits[:, :-1].float()
    log_probs = (full_logits / temperature).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return log_probs.masked_fill(mask[:, 1:] == 0, 0).cpu().double().tolist()  # type: ignore[no-any-return]
