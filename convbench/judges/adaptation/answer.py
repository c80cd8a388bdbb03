"""Greedy decoding of many prompts in one batch. Imports torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from convbench.judges.adaptation.clock import PassClock


def greedy_replies(
    model: Any,
    prompts: Sequence[Sequence[int]],
    ends: Collection[int],
    most: int,
    clock: PassClock,
    copies: int = 1,
) -> list[list[list[int]]]:
    """Return replies as token ids, [copies][prompts][tokens], each of at most `most` tokens and
    without the end token.

    The batch has all prompts `copies` times, so that copy i is answered by the adapter of seed i.
    Prompts are padded on the left. Raise ValueError without prompts.
    """
    with torch.no_grad():
        drawn = _draw_tokens(model, prompts, ends, most, clock, copies)
    replies = [[t for t in row if t >= 0] for row in torch.stack(drawn, dim=1).tolist()]
    count = len(prompts)
    return [replies[i * count : (i + 1) * count] for i in range(copies)]


def _draw_tokens(
    model: Any,
    prompts: Sequence[Sequence[int]],
    ends: Collection[int],
    most: int,
    clock: PassClock,
    copies: int,
) -> list[Any]:
    """Return one tensor [copies * prompts] of token ids for each step; -1 from the end token on."""
    device = model.device
    width = max(len(prompt) for prompt in prompts)
    padded = [[*[0] * (width - len(prompt)), *prompt] for prompt in prompts]
    ids = torch.tensor(padded, device=device).repeat(copies, 1)
    lengths = torch.tensor([len(p) for p in prompts], device=device).repeat(copies)
    mask = (torch.arange(width, device=device)[None] >= width - lengths[:, None]).long()
    at = (mask.cumsum(-1) - 1).clamp(min=0)
    stop = torch.tensor(sorted(ends), device=device)
    cache = DynamicCache()
    drawn = []
    open_ = torch.ones(len(ids), dtype=torch.bool, device=device)
    for _ in range(most):
        with clock.count_pass():
            logits = model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=at,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
        ids = logits.argmax(-1, keepdim=True)
        open_ = open_ & ~torch.isin(ids[:, 0], stop)
        drawn.append(torch.where(open_, ids[:, 0], -1))
        if not bool(open_.any()):
            break
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        at = at[:, -1:] + 1
    return drawn
