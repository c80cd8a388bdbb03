"""What all calls of one command share, over its runs, stages and threads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from convbench.engine.budget import Budget


@dataclass(frozen=True)
class Session:
    """Built once a command, or a call of the Python API, and handed beside its options."""

    ledger: Budget = field(default_factory=Budget)
    """What is spent, and its limits."""
    pauses: dict[str, float] = field(default_factory=dict)
    """Endpoint → `time.monotonic()` until which it asked for no calls."""
    named: frozenset[str] = frozenset()
    """References of models that the user named, which a pulled run may call too."""

    def naming(self, *models: str | None) -> Session:
        """Return the session in which the user has named these models too; None is none."""
        return replace(self, named=self.named.union(filter(None, models)))
