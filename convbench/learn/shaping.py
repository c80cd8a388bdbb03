"""From the rewards of a group to its weights, by the fields of `weighting`: pure functions.

In this order: rank, mean, standard deviation, shape, clip; then what does not train is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from convbench.errors import TrainError
from convbench.learn.ties import equals, settle
from convbench.schema.recipe import Weighting

STEEPEST = 700.0
"""Largest A / temperature whose exponential is a number."""


def shaped(rewards: Sequence[float], by: Weighting, *key: object) -> list[float | None]:
    """Return the weights of one group's rewards; None leaves a conversation out. `key` draws among
    equals where the best is wanted.

    A group of one has no mean of others, and no standard deviation: it is left out where one is
    asked for.
    """
    if len(rewards) < 2 and (by.scale or (by.center and by.leave_one_out)):
        return [None] * len(rewards)
    advantages = _advantages(ranks(rewards) if by.rank else list(rewards), by)
    weights = [_weight(advantage, by) for advantage in advantages]
    kept = _kept(rewards, advantages, by, *key)
    return [weight if on else None for weight, on in zip(weights, kept, strict=True)]


def ranks(rewards: Sequence[float]) -> list[float]:
    """Return each reward's rank from 0 (lowest) to 1; equal ones share the mean of their ranks."""
    most = max(len(rewards) - 1, 1)
    return [
        (sum(other < value for other in rewards) + (len(equals(rewards, value)) - 1) / 2) / most
        for value in rewards
    ]


def _advantages(values: Sequence[float], by: Weighting) -> list[float]:
    n, mean = len(values), fmean(values)
    if by.center and by.leave_one_out:
        apart = [value - (n * mean - value) / (n - 1) for value in values]
    else:
        apart = [value - mean * by.center for value in values]
    if not by.scale:
        return apart
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    if std <= 1e-12 * max(1.0, abs(mean)):
        return [0.0] * n
    return [value / std for value in apart]


def _weight(advantage: float, by: Weighting) -> float:
    weight = 1.0 if by.shape == "one" else advantage
    if by.shape == "exponential":
        power = advantage / by.temperature
        if power > STEEPEST and by.clip is None:
            raise TrainError(
                f"weighting.temperature: found {by.temperature:g}, with which a weight is "
                f"exp({power:.4g}); expected a higher one, or weighting.clip"
            )
        weight = math.exp(min(power, STEEPEST))
    return weight if by.clip is None else max(-by.clip, min(by.clip, weight))


def _kept(
    rewards: Sequence[float], advantages: Sequence[float], by: Weighting, *key: object
) -> list[bool]:
    least = -math.inf if by.threshold is None else by.threshold
    kept = [reward >= least for reward in rewards]
    if by.keep == "positive":
        return [on and advantage > 0 for on, advantage in zip(kept, advantages, strict=True)]
    if by.keep == "best":
        winners = settle(equals(rewards, max(rewards)), by.ties, *key, "best")
        return [on and place in winners for place, on in enumerate(kept)]
    return kept
