"""What SWEET's critic takes of memory at its peak, before anything is loaded: its scoring and its
training step, from the model's shape and the longest rows.

Counted are the tensors that live at once; what allocators and libraries add is not. Measured on a
model of 100 million weights by `python -m tests.bench.sweet_memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convbench.models.shape import Shape

BUDGET = 16_384
"""Positions of a batch that is scored."""
FLOAT = 4
"""Bytes of a float32 number."""


@dataclass(frozen=True)
class Rows:
    """One batch of rows, padded to the longest."""

    lengths: tuple[int, ...]
    """Tokens of each row."""
    said: tuple[int, ...]
    """The policy's tokens of each row."""

    @property
    def positions(self) -> int:
        """Positions of the padded batch."""
        return len(self.lengths) * max(self.lengths, default=0)


@dataclass(frozen=True)
class Peak:
    """Bytes at the peak, by what holds them."""

    weights: float
    """The model's own, in the precision that it computes in."""
    training: float
    """Gradients, the optimiser's moments and its own copy of the weights."""
    inside: float
    """What the layers hold."""
    logits: float
    """Logits, and what is made of them."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.training + self.inside + self.logits


def scoring(shape: Shape, rows: Rows, width: int = FLOAT) -> Peak:
    """Return the peak of scoring a batch without gradients; `width`: bytes of a number of weights
    and activations (2 for bf16).

    The logits of all positions are there at once, and beside them those of one row's own tokens: a
    copy, its float32 (where it is not one) and its logarithms.
    """
    own = max(rows.said, default=0) * shape.words
    floats = FLOAT if width == FLOAT else 2 * FLOAT
    logits = rows.positions * shape.words * width + own * (width + floats)
    # Residual stream and what one layer has open: its input's norm, gate, up and their product.
    layer = rows.positions * (3 * shape.hidden + 3 * shape.wide) * width
    hidden = rows.positions * 2 * shape.hidden * width
    weights = shape.weights * width
    inside, last = (layer, 0.0) if layer > hidden + logits else (hidden, logits)
    return Peak(float(weights), 0.0, float(inside), float(last))


def training(
    shape: Shape,
    rows: Rows,
    *,
    width: int = FLOAT,
    checkpointing: bool = False,
    shards: int = 1,
) -> Peak:
    """Return the peak of one micro-batch's training step of all weights with AdamW.

    `rows` are those of a pair, both sides. Weights, gradients and two moments are float32, split
    over `shards` processes (ZeRO-3); with `width` 2 a bf16 copy is computed with. The peak is where
    the backward pass begins: what the layers kept, the kept logarithms of all own tokens, and the
    gradient of the logits, once summed and once for the row at hand.
    """
    fixed = shape.weights * 3 * FLOAT / shards
    weights = shape.weights * FLOAT / shards + (shape.weights * width if width != FLOAT else 0)
    kept = 6 * shape.hidden + 3 * shape.queries + 2 * shape.keys + 4 * shape.wide
    every = rows.positions * width
    inside = every * (shape.layers * shape.hidden + kept if checkpointing else shape.layers * kept)
    own = sum(rows.said) * shape.words
    logits = 2 * rows.positions * shape.words * width + own * FLOAT
    return Peak(float(weights), fixed, float(inside), float(logits))


def batch_of(longest: Sequence[tuple[int, int]], tokens: int) -> Rows:
    """Return the first batch that scoring makes of rows (length, own tokens), longest first, within
    a budget of positions; never none of them."""
    order = sorted(longest, reverse=True)
    if not order:
        return Rows((), ())
    taken = order[: max(1, tokens // max(1, order[0][0]))]
    return Rows(tuple(n for n, _ in taken), tuple(said for _, said in taken))
