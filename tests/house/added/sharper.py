"""An objective of its own: -w rho^2 log pi, as somebody would add one."""

from typing import Any

from convbench.learn.losses import TokenBatch
from convbench.schema.recipe import Loss

FIELDS = ()


def needs_pi_0(settings: Loss) -> bool:
    """Whether log pi_0 of the logged tokens is needed."""
    return True


def loss(seen: TokenBatch, settings: Loss) -> Any:
    """Return the loss of every token."""
    return -seen.weight[:, None] * seen.ratios("token").detach() ** 2 * seen.log_probs
