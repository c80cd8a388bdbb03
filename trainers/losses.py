"""Losses of weighted rows, token by token: what `loss.name` names.

A loss is a function of the arguments that it names, and returns the loss of every token, shape
(rows, tokens):

    log_probs   log pi of each token of the policy, 0 elsewhere; carries the gradient
    weights     the weight of each token, 0 elsewhere
    reference   log pi_0 of each token under the model that training starts from, 0 elsewhere
    low, high   `loss.low` and `loss.high`

A file of your own (`loss.name: mine.py`) has one named `loss`; `reference` is computed only if it
is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from convbench.errors import SpecError
from convbench.learn.launch import load_module
from convbench.schema.recipe import Loss

TokenLoss = Callable[..., Tensor]


def nll(log_probs: Tensor, weights: Tensor) -> Tensor:
    """Return -w log pi: with weights r ReFit, equation (5); standardised ones SWiFt, equation (9);
    ones SFT (Mukherjee et al., NeurIPS 2025)."""
    return -weights * log_probs


def ppo(log_probs: Tensor, weights: Tensor, reference: Tensor, low: float, high: float) -> Tensor:
    """Return -min(rho w, clip(rho, 1 - low, 1 + high) w), rho = pi / pi_0 of a token: PPO's
    clipped surrogate on a log, equation (6) of Mukherjee et al.; Schulman et al. (2017), (7)."""
    rho = (log_probs - reference).exp()
    return -(rho * weights).minimum(rho.clamp(1 - low, 1 + high) * weights)


def a_lol(log_probs: Tensor, weights: Tensor, reference: Tensor, low: float, high: float) -> Tensor:
    """Return -w clip(rho, 1 - low, 1 + high) log pi, rho = pi / pi_0 of a whole row, a constant of
    the gradient: advantage-leftover-lunch RL (Baheti et al., ICLR 2024)."""
    rho = (log_probs - reference).sum(-1, keepdim=True).exp().detach()
    return -weights * rho.clamp(1 - low, 1 + high) * log_probs


LOSSES: dict[str, TokenLoss] = {"nll": nll, "ppo": ppo, "a-lol": a_lol}


def load_loss(settings: Loss) -> TokenLoss:
    """Return the loss that `loss.name` names. Raise SpecError for a file without one."""
    if settings.name in LOSSES:
        return LOSSES[settings.name]
    loss: TokenLoss | None = getattr(load_module(Path(settings.name)), "loss", None)
    if loss is None:
        raise SpecError(f"{settings.name}: found no function `loss`; expected one")
    return loss


def kl_divergence(policy: Tensor, base: Tensor) -> Tensor:
    """Return KL(pi || base) in nats of every token, exact over the vocabulary, from logits of shape
    (tokens, vocabulary)."""
    policy, base = policy.log_softmax(-1), base.log_softmax(-1)
    return (policy.exp() * (policy - base)).sum(-1)
