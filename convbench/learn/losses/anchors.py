"""Anchors: losses that hold a policy to the model it started from, token by token of the log."""

from __future__ import annotations

from typing import Any

from convbench.schema.recipe import Loss

EXACT = ("kl", "forward-kl")
"""Anchors that need the full distributions of both models."""


def needs_base(settings: Loss) -> bool:
    """Return True for anchor `k3` of a weight above 0, which needs the base's log pi of the logged
    tokens."""
    return settings.has_anchor and settings.anchor == "k3"


def needs_model(settings: Loss) -> bool:
    """Return True for anchor `kl` or `forward-kl` of a weight above 0, which needs the base during
    training."""
    return settings.has_anchor and settings.anchor in EXACT


def anchor_penalty(kind: str, log_probs: Any, base: Any) -> Any:
    """Return the anchor's loss of every token: `sft` from log_probs of shape (rows, tokens - 1),
    `k3` from these and the base's.

    sft: -log pi. On the base's own samples its mean is KL(base || pi) plus a constant; with `nll`
    it is every weight raised by the anchor's factor.
    k3: u - 1 - log u with u = base / pi, Schulman (2020); without bias for KL(pi || base) on
    samples of pi, on logged ones as GRPO takes it. It grows as base / pi where a token is
    unlearned.
    """
    if kind == "sft":
        return -log_probs
    log_ratio = base - log_probs
    return log_ratio.exp() - 1 - log_ratio


def kl_divergence(kind: str, logits: Any, base: Any) -> Any:
    """Return the KL divergence at every token, in nats, from logits of shape (..., vocabulary).

    For `kl` it is KL(pi || base) = sum_v pi log(pi / base), for any other kind KL(base || pi).
    """
    policy, reference = logits.log_softmax(-1), base.log_softmax(-1)
    first, second = (policy, reference) if kind == "kl" else (reference, policy)
    return (first.exp() * (first - second)).sum(-1)
