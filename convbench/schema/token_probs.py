"""Log-probabilities of a reply's tokens under the model that sampled them."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_LOGPROBS = 1_000_000
"""Most tokens of one reply."""
ROUNDING = 1e-3
"""How far above 0 rounding may put a log-probability."""
LARGEST_ID = 1 << 31


@dataclass(frozen=True, slots=True)
class TokenProbs:
    """log pi_0 of every sampled token of one reply, in nats, with its end-of-turn token last if it
    is there; and the tokens' ids, or the number of bytes of each one's text."""

    log_probs: tuple[float, ...]
    """At temperature 1, before any cut of the distribution."""
    ids: tuple[int, ...] = ()
    """Token ids; empty if unknown."""
    sizes: tuple[int, ...] = ()
    """UTF-8 bytes of each token's text, if there are no ids."""
    drawn: tuple[float, ...] = ()
    """Under the distribution that was drawn from (temperature, top_p, top_k); empty if unknown."""


def probs_problem(probs: TokenProbs) -> str | None:
    """Return what makes log-probabilities unusable, or None if nothing does."""
    n = len(probs.log_probs)
    if not 0 < n <= MOST_LOGPROBS:
        return f"found {n} tokens; expected 1 to {MOST_LOGPROBS}"
    if bool(probs.ids) == bool(probs.sizes):
        return "found neither token ids nor texts, or both; expected one of them"
    for name in ("ids", "sizes", "drawn"):
        values = getattr(probs, name)
        if values and len(values) != n:
            return f"found {n} log-probabilities and {len(values)} {name}; expected as many"
    if not all(
        math.isfinite(value) and value <= ROUNDING for value in probs.log_probs + probs.drawn
    ):
        return "found a log-probability that is no number of at most 0"
    if not all(0 <= value < LARGEST_ID for value in probs.ids + probs.sizes):
        return "found a token id or size below 0 or too large"
    return None
