"""Bounded terms that replace log pi, which has no lower bound, for tokens of negative weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convbench.learn.losses import TokenBatch
from convbench.schema.recipe import Loss

NEAR = -1e-6
"""log pi of a token counts as no nearer to 0 than this: -log(1 - pi) is infinite there."""


def unlikelihood_bound(seen: TokenBatch, settings: Loss) -> Any:
    """Return -log(1 - pi) of every token, shape (rows, tokens - 1), 0 where masked; Welleck et al.

    (2020), equation (2).

    Its gradient goes to 0 with pi, and is pi / (1 - pi) times that of log pi, large if pi is near
    1.
    """
    likely = seen.log_probs.masked_fill(~seen.mask, -1.0).clamp(max=NEAR)
    return -(-likely.expm1()).log() * seen.mask


def floor_bound(seen: TokenBatch, settings: Loss) -> Any:
    """Return max(log pi, log pi_0 - floor) of every token, shape (rows, tokens - 1), 0 where
    masked.

    There is no gradient once a token is that far below the logging policy. With an infinite floor
    it is log pi.
    """
    return seen.log_probs.maximum(seen.pi_0 - settings.floor) * seen.mask


def taper_bound(seen: TokenBatch, settings: Loss) -> Any:
    """Return min(1, pi / pi_0) log pi of every token, the ratio without a gradient: tokens that are
    unlearned already count less. Le Roux et al. (2025), tapered off-policy REINFORCE, equation (5),
    with the row's ratio (`ratio: sequence`). If pi = pi_0 it is log pi."""
    return seen.ratios(settings.ratio).detach().clamp(max=1.0) * seen.log_probs


BOUNDS: dict[str, Callable[[TokenBatch, Loss], Any]] = {
    "unlikelihood": unlikelihood_bound,
    "floor": floor_bound,
    "taper": taper_bound,
}
