"""What steps of an experiment take: calls, tokens, dollars, optimiser steps, disk, hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from convbench.learn.plan import FLOPS
from convbench.learn.shapes import shape_of
from convbench.rollout.calls import SCRIPT
from convbench.rollout.preview import CallEstimate

WRITE_RATE = 2e13
"""Assumed weights times tokens that it generates a second, over many conversations at once: 2,500
tokens a second with 8 billion weights."""
READ_OPERATIONS = 2
"""Operations for each weight and token that is read."""
TRAINED_HERE = "local:checkpoint"
"""Model reference that stands for a policy that is trained in this experiment."""


@dataclass
class ResourceEstimate:
    """Estimate of what some steps take."""

    conversations: int = 0
    calls: int = 0
    """Calls of all speakers, of candidates, and of models that grade single answers."""
    verdicts: int = 0
    """Conversations judged, counted once for each judge."""
    tokens: int = 0
    """Most tokens of prompts and replies, judges' included."""
    usd: float = 0.0
    """Most dollars, for models whose price is known."""
    unpriced: set[str] = field(default_factory=set)
    """Models whose price is unknown."""
    steps: int = 0
    """Most steps of the optimiser."""
    disk: float = 0.0
    """Bytes that remain on disk."""
    passing: float = 0.0
    """Bytes of the largest training's checkpoints to resume from, which are deleted later."""
    hours: float = 0.0
    """Hours of one accelerator."""
    unweighed: set[str] = field(default_factory=set)
    """Models with an unknown number of weights; their disk and hours are not counted."""

    def add(self, other: ResourceEstimate, times: int = 1) -> None:
        """Add the estimate of other steps in place, so many times: sums, unions of the sets of
        models, and the larger `passing`."""
        sums = ("conversations", "calls", "verdicts", "tokens", "usd", "steps", "disk", "hours")
        for name in sums:
            setattr(self, name, getattr(self, name) + getattr(other, name) * times)
        self.passing = max(self.passing, other.passing)
        self.unpriced |= other.unpriced
        self.unweighed |= other.unweighed


def sum_estimates(amounts: Iterable[ResourceEstimate]) -> ResourceEstimate:
    """Return the sum of estimates as a new one, all 0 without any; `passing` is the largest, not a
    sum."""
    combined = ResourceEstimate()
    for amount in amounts:
        combined.add(replace(amount))
    return combined


def count_weights(model: str) -> int | None:
    """Return the number of weights of a model (a path, a Hub id or a reference to one), from its
    shape; None if the model is not available or its shape is unknown."""
    shape = shape_of(model)
    return None if shape is None else shape.weight_count


def calls_amount(
    sizes: Iterable[CallEstimate], times: int, weights: Mapping[str, int | None]
) -> ResourceEstimate:
    """Return what these calls take, each made so many times. `weights` has the number of weights of
    each speaker whose model runs here, None if it is unknown."""
    amount = ResourceEstimate()
    for size in sizes:
        amount.calls += times
        amount.tokens += times * (size.prompt + size.reply)
        amount.usd += times * (size.usd or 0.0)
        if size.usd is None and size.model != SCRIPT:
            amount.unpriced.add(size.model)
        if size.speaker not in weights:
            continue
        count = weights[size.speaker]
        if count is None and size.model != TRAINED_HERE:
            amount.unweighed.add(size.model)
        seconds = size.prompt * READ_OPERATIONS / FLOPS + size.reply / WRITE_RATE
        amount.hours += times * seconds * (count or 0) / 3600
    return amount
