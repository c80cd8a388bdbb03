"""What all calls of one command share, over its runs, stages and threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from convbench.engine.budget import Budget
from convbench.models.model import Model


@dataclass(frozen=True)
class Session:
    """Built once a command, or a call of the Python API, and handed beside its options."""

    ledger: Budget = field(default_factory=Budget)
    """What is spent, and its limits."""
    pauses: dict[str, float] = field(default_factory=dict)
    """Endpoint → `time.monotonic()` until which it asked for no calls."""
    models: dict[Hashable, tuple[Model, int]] = field(default_factory=dict)
    """Open models with their numbers of users, by event loop and configuration."""
    named: frozenset[str] = frozenset()
    """References of models that the user named, which a pulled run may call too."""

    @asynccontextmanager
    async def open(self, key: Hashable, make: Callable[[], Model]) -> AsyncIterator[Model]:
        """Yield the open model of a configuration, which its users in this event loop share; the
        last of them closes it."""
        name = asyncio.get_running_loop(), key
        model, users = self.models.get(name) or (make(), 0)
        self.models[name] = model, users + 1
        try:
            yield model
        finally:
            model, users = self.models.pop(name)
            if users > 1:
                self.models[name] = model, users - 1
            else:
                await model.aclose()

    def naming(self, *models: str | None) -> Session:
        """Return the session in which the user has named these models too; None is none."""
        return replace(self, named=self.named.union(filter(None, models)))
