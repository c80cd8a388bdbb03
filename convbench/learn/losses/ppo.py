"""PPO's clipped surrogate on a log: -min(rho A, clip(rho, 1 - low, 1 + high) A), token by token.

Equation (6) of Mukherjee et al. (NeurIPS 2025); Schulman et al. (2017), equation (7). GRPO (Shao et
al. 2024, equation (3)) is the same with A standardised over the task's conversations, a `k3` anchor
and each row's loss the mean over its tokens (`fit.normalize: lengths`): recipe `grpo`. Where
pi = pi_0 the gradient is that of `nll`: SWiFt's, for standardised rewards.
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
    """Return -min(rho w, clip(rho, 1 - low, 1 + high) w) of every token, shape (rows, tokens - 1),
    0 where masked."""
    rho = seen.ratios("token")
    weight = seen.weight[:, None].to(rho.dtype)
    clipped = rho.clamp(1 - settings.low, 1 + settings.high)
    return -(rho * weight).minimum(clipped * weight) * seen.mask
