"""What steps of an experiment ask for: conversations, calls, verdicts, tokens, dollars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from convbench.rollout.calls import SCRIPT
from convbench.rollout.preview import CallEstimate

TRAINED_HERE = "local:checkpoint"
"""Model reference that stands for a policy that is trained in this experiment."""


@dataclass
class ResourceEstimate:
    """Estimate of what some steps take."""

    conversations: int = 0
    calls: int = 0
    """Calls of all speakers, of candidates, and of models that grade single answers."""
    verdicts: int = 0
    """Conversations judged, counted once for each judge."""
    tokens: int = 0
    """Most tokens of prompts and replies, judges' included."""
    usd: float = 0.0
    """Most dollars, for models whose price is known."""
    unpriced: set[str] = field(default_factory=set)
    """Models whose price is unknown."""

    def add(self, other: ResourceEstimate, times: int = 1) -> None:
        """Add the estimate of other steps in place, so many times."""
        for name in ("conversations", "calls", "verdicts", "tokens", "usd"):
            setattr(self, name, getattr(self, name) + getattr(other, name) * times)
        self.unpriced |= other.unpriced


def sum_estimates(amounts: Iterable[ResourceEstimate]) -> ResourceEstimate:
    """Return the sum of estimates as a new one, all 0 without any."""
    combined = ResourceEstimate()
    for amount in amounts:
        combined.add(replace(amount))
    return combined


def calls_amount(sizes: Iterable[CallEstimate], times: int) -> ResourceEstimate:
    """Return what these calls take, each made so many times."""
    amount = ResourceEstimate()
    for size in sizes:
        amount.calls += times
        amount.tokens += times * (size.prompt + size.reply)
        amount.usd += times * (size.usd or 0.0)
        if size.usd is None and size.model != SCRIPT:
            amount.unpriced.add(size.model)
    return amount
