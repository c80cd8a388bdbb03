"""A-LoL: -A clip(rho, 1 - low, 1 + high) log pi, rho the ratio pi / pi_0 of the whole row.

Advantage-leftover-lunch RL (Baheti et al., ICLR 2024): the policy gradient of a reply taken as one
action, importance weight clipped and a constant of the gradient, on advantages above 0 only (recipe
`a-lol` has `weighting.keep: positive`; the paper's advantage is r minus a learnt value of the
question, here r minus the mean over its conversations). With low = high = 0 it is the gradient of
`nll`.
"""

from __future__ import annotations

from typing import Any

from convbench.learn.losses import TokenBatch
from convbench.schema.recipe import Loss

FIELDS = ("low", "high")
"""Fields of `loss` that it uses."""


def needs_pi_0(settings: Loss) -> bool:
    """Return True: log pi_0 of the logged tokens is needed."""
    return True


def loss(seen: TokenBatch, settings: Loss) -> Any:
    """Return -A clip(rho) log pi of every token, shape (rows, tokens - 1); A is the row's weight.

    The row's ratio rho has no gradient. The loss is 0 where masked.
    """
    rho = seen.ratios("sequence").detach().clamp(1 - settings.low, 1 + settings.high)
    return -seen.weight[:, None].to(rho.dtype) * rho * seen.log_probs
