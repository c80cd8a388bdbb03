"""The interface to judge kinds: the run to judge, and the tools that a kind opens for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from convbench.engine.caller import Caller
from convbench.judge.ask import Calls
from convbench.judge.resolve import Judge
from convbench.models.model import Model
from convbench.options.shared import CallOptions
from convbench.rollout.calls import at_once, calling
from convbench.store import Run


@dataclass(frozen=True)
class Work:
    """One judge and one run, whose lock is held."""

    run: Run
    judge: Judge
    calls: CallOptions

    def calling(self, concurrency: int, *models: Model) -> AbstractAsyncContextManager[Caller]:
        """Open a caller with budget, journal and progress."""
        return calling(self.run, self.calls, f"judge {self.judge.name}", concurrency, models)


@dataclass(frozen=True)
class Tools:
    """What a judge kind opens for its run."""

    caller: Calls | None = None
    concurrency: int = 1
    """Number of conversations to score concurrently."""
    held: Any = None
    """State of the kind itself, such as the judge's model or a learner."""


@asynccontextmanager
async def plain(work: Work) -> AsyncIterator[tuple[Caller, Tools]]:
    """Open a caller for a judge that asks no model."""
    many = at_once(work.calls, [])
    async with work.calling(many) as caller:
        yield caller, Tools(caller, many)
