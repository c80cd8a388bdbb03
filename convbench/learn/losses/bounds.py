"""What is minimised of tokens with a weight below 0, in place of log pi, which has no lower end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convbench.learn.losses import Seen
from convbench.schema.recipe import Loss

NEAR = -1e-6
"""log pi of a token counts as no nearer to 0 than this: -log(1 - pi) is infinite there."""


def unlikelihood(seen: Seen, settings: Loss) -> Any:
    """-log(1 - pi), Welleck et al. (2020), equation (2): its gradient goes to 0 with pi, and is
    pi / (1 - pi) times that of log pi, large where pi is near 1."""
    likely = seen.log_probs.masked_fill(~seen.mask, -1.0).clamp(max=NEAR)
    return -(-likely.expm1()).log() * seen.mask


def floor(seen: Seen, settings: Loss) -> Any:
    """max(log pi, log pi_0 - floor): no gradient once a token is so far below the logging policy;
    for an endless floor log pi itself."""
    return seen.log_probs.maximum(seen.pi_0 - settings.floor) * seen.mask


def taper(seen: Seen, settings: Loss) -> Any:
    """min(1, pi / pi_0) log pi, the ratio a constant of the gradient: what is unlearned already
    counts for less. Le Roux et al. (2025), tapered off-policy REINFORCE, equation (5), whose ratio
    is the row's (`ratio: sequence`); where pi = pi_0 it is log pi."""
    return seen.ratios(settings.ratio).detach().clamp(max=1.0) * seen.log_probs


BOUNDS: dict[str, Callable[[Seen, Loss], Any]] = {
    "unlikelihood": unlikelihood,
    "floor": floor,
    "taper": taper,
}
