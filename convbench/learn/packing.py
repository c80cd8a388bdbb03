"""Rows laid end to end in place of padding, each seen by itself alone: positions begin anew, and
the attention of one row ends where the next begins.

What a model gives back is put where the padded row had it, so that objectives, anchors and counts
see rows; only the model sees packs. Sums are the same, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from convbench.errors import TrainError

BY_ROW = "convbench-by-row"
"""Attention computed row after row of one pack: as `sdpa` has it, and nothing between rows."""
BY_MASK = ("sdpa", "eager")
"""Attention whose mask transformers makes of the positions, pack by pack."""
TRIED = 12
"""Tokens of each row with which it is tried whether packs keep rows apart."""


@dataclass(frozen=True)
class Packs:
    """A padded batch as packs."""

    inputs: dict[str, torch.Tensor]
    """`input_ids`, `position_ids` and `labels`, of shape (packs, width); where attention goes by
    row `cu_seq_lens_q`, of shape (rows + 1,): where each begins."""
    places: torch.Tensor
    """Of each row's tokens but the first: which score of (packs, width - 1), flat, is its own.
    Shape (rows, tokens - 1)."""
    real: torch.Tensor
    """Which of these are no padding, of the same shape."""

    def back(self, scores: torch.Tensor) -> torch.Tensor:
        """From (packs, width - 1, ...) to (rows, tokens - 1, ...), 0 where padded."""
        found = scores.flatten(0, 1)[self.places]
        apart = self.real.reshape(*self.real.shape, *[1] * (found.ndim - 2))
        return found.masked_fill(~apart, 0)


def bins(lengths: Sequence[int], most: float) -> list[list[int]]:
    """Return places of rows by pack, no pack longer than `most` (or its only row): the longest row
    first, each where it leaves least room (best fit decreasing)."""
    packs: list[list[int]] = []
    room: list[float] = []
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits = [i for i, left in enumerate(room) if left >= lengths[place]]
        if fits:
            best = min(fits, key=lambda i: room[i])
            packs[best].append(place)
            room[best] -= lengths[place]
        else:
            packs.append([place])
            room.append(most - lengths[place])
    return packs


def packed(inputs: dict[str, Any], attention: str) -> Packs:
    """Return the packs of `input_ids`, `attention_mask` and `labels`, of shape (rows, tokens), rows
    padded at their end: one of all rows where `attention` goes by row, else several that are no
    longer than the longest row, since a mask grows with the square of theirs."""
    ids, labels = inputs["input_ids"], inputs["labels"]
    lengths = inputs["attention_mask"].sum(-1).tolist()
    found = bins(lengths, math.inf if attention == BY_ROW else max(lengths))
    width = max(sum(lengths[row] for row in pack) for pack in found)
    starts = [0] * len(lengths)
    positions: list[int] = []
    for number, pack in enumerate(found):
        at = 0
        for row in pack:
            starts[row] = number * width + at
            positions += range(lengths[row])
            at += lengths[row]
        positions += range(width - at)  # what is left over is a row of its own
    steps = torch.arange(ids.shape[1], device=ids.device)
    places = torch.tensor(starts, device=ids.device)[:, None] + steps
    real = inputs["attention_mask"].bool()
    wanted = labels.clone()
    wanted[:, 0] = -100  # nothing of its own row precedes it
    laid = {"input_ids": ids.new_zeros(len(found) * width)}
    laid["labels"] = labels.new_full((len(found) * width,), -100)
    laid["input_ids"][places[real]] = ids[real]
    laid["labels"][places[real]] = wanted[real]
    laid["position_ids"] = torch.tensor(positions, device=ids.device)
    given = {name: values.view(-1, width) for name, values in laid.items()}
    if attention == BY_ROW:
        begins = laid["position_ids"].eq(0).nonzero()[:, 0]
        given["cu_seq_lens_q"] = torch.cat([begins, begins.new_tensor([width])])
    places, real = places[:, 1:], real[:, 1:]
    return Packs(given, (places - places // width - 1).masked_fill(~real, 0), real)


def row_by_row(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    cu_seq_lens_q: Any = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of each row of a pack to itself alone, from queries of shape (1, heads, tokens, d)
    and where rows begin, the end of the last one included. Without that, as `sdpa`."""
    of = partial(sdpa_attention_forward, module, attention_mask=attention_mask, **settings)
    if cu_seq_lens_q is None:
        return of(query, key, value)  # type: ignore[no-any-return]
    own = [
        of(*(part[:, :, start:end] for part in (query, key, value)))[0]
        for start, end in pairwise(cu_seq_lens_q.tolist())
    ]
    return torch.cat(own, dim=1), None


AttentionInterface.register(BY_ROW, row_by_row)


def settled(model: Any, inner: Any, like: torch.Tensor) -> str:
    """Set the attention of `inner`, the model within `model`, to one that keeps rows of a pack
    apart, and return its name; TrainError where none does. `like` says where ids lie.

    Tried out: logits of a row that stands behind another are those of the row alone. A model with a
    state of its own (Mamba), or with positions that it does not take from outside, fails that
    whatever its attention.
    """
    config = inner.config.get_text_config()
    own: str = config._attn_implementation or "eager"
    if own not in BY_MASK:
        raise TrainError(
            f"fit.packing: found attention {own!r}, which is not known to keep rows of one pack "
            f"apart; expected {' or '.join(BY_MASK)}, or fit.packing=false"
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    whole = kinds == {"full_attention"} and not getattr(config, "sliding_window", None)
    apart = math.inf
    for way in [BY_ROW, own] if own == "sdpa" and whole else [own]:
        if way != own or apart < math.inf:
            inner.set_attn_implementation(way)
        apart, limit = _tried(model, config.vocab_size, way, like)
        if apart < limit:
            return way
    raise TrainError(
        f"fit.packing: rows of one pack see each other in this model ({config.model_type}, "
        f"attention {own}: logits {apart:.1%} off); expected fit.packing=false"
    )


def _tried(model: Any, words: int, attention: str, like: torch.Tensor) -> tuple[float, float]:
    """Return how far logits of a packed row are from its own, of their largest, and how far
    rounding may take them."""
    count = torch.arange(2 * TRIED, device=like.device)
    ids = (count * 7919 % words).view(2, TRIED)
    packs = packed(
        {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}, BY_ROW
    )
    given = {name: value for name, value in packs.inputs.items() if name != "labels"}
    if attention != BY_ROW:
        del given["cu_seq_lens_q"]
    training = model.training
    model.eval()
    with torch.no_grad():
        behind = model(**given, use_cache=False).logits[0, TRIED:]
        alone = model(input_ids=ids[1:], use_cache=False).logits[0]
    model.train(training)
    apart = float((behind - alone).abs().max() / alone.abs().max())
    return apart, 1e-3 if alone.dtype in (torch.float32, torch.float64) else 0.05
