"""Weighted negative log-likelihood: -w log pi(a_t | h_t) for every token of the policy.

With weights r >= 0 this is ReFit, with standardised ones SWiFt, with 1 it is SFT (equations (5)
and (9) of Mukherjee et al., NeurIPS 2025). `negative` bounds what a weight below 0 does.
"""

from __future__ import annotations

from typing import Any

from convbench.learn.losses import TokenBatch, bounds
from convbench.schema.recipe import Loss

FIELDS = ("negative", "floor", "ratio")
"""Fields of `loss` that it uses."""


def needs_pi_0(settings: Loss) -> bool:
    """Return True if `negative` is `floor` or `taper`, which need log pi_0 of the logged tokens."""
    return settings.negative in ("floor", "taper")


def loss(seen: TokenBatch, settings: Loss) -> Any:
    """Return -w log pi of every token, shape (rows, tokens - 1), 0 where masked.

    In rows with w < 0 it is |w| times the bound that `negative` names, unless that is `full`.
    """
    weight = seen.weight[:, None].to(seen.log_probs.dtype)
    unbounded = -weight * seen.log_probs
    if settings.negative == "full":
        return unbounded
    bounded = weight.abs() * bounds.BOUNDS[settings.negative](seen, settings)
    return bounded.where(weight < 0, unbounded)
