"""Truncated importance weights: -w min(rho, most) log pi, rho = pi / pi_0 without a gradient.

The gradient of equation (3) of Mukherjee et al. (NeurIPS 2025) with its propensity ratio truncated
(Ionides 2008). `ratio: token` takes rho token by token, as V-trace does (Espeholt et al. 2018);
`sequence` is the ratio of the whole row, without bias where it is not truncated. Where pi = pi_0 it
is the gradient of `nll`.
"""

from __future__ import annotations

from typing import Any

from convbench.learn.losses import TokenBatch
from convbench.schema.recipe import Loss

FIELDS = ("ratio", "most")
"""Fields of `loss` that it uses."""


def needs_pi_0(settings: Loss) -> bool:
    """Return True: log pi_0 of the logged tokens is needed."""
    return True


def loss(seen: TokenBatch, settings: Loss) -> Any:
    """Return -w min(rho, most) log pi of every token, shape (rows, tokens - 1); 0 where masked.

    The ratio rho, of the token or of the row by `ratio`, has no gradient.
    """
    rho = seen.ratios(settings.ratio).detach().clamp(max=settings.most)
    return -seen.weight[:, None].to(rho.dtype) * rho * seen.log_probs
