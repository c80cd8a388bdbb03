"""What a kind of judge gets to work with: the run, and the calls that it may make."""

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
    """One judge over one run, whose lock is held."""

    run: Run
    judge: Judge
    calls: CallOptions

    def calling(self, concurrency: int, *models: Model) -> AbstractAsyncContextManager[Caller]:
        """Open what makes the calls, with budget, journal and progress."""
        return calling(self.run, self.calls, f"judge {self.judge.name}", concurrency, models)


@dataclass(frozen=True)
class Tools:
    """What a kind opened: what makes calls, how many conversations to score at once, and what
    only this kind knows of."""

    caller: Calls | None = None
    concurrency: int = 1
    held: Any = None


@asynccontextmanager
async def plain(work: Work) -> AsyncIterator[tuple[Caller, Tools]]:
    """Open what a judge needs that asks no model."""
    many = at_once(work.calls, [])
    async with work.calling(many) as caller:
        yield caller, Tools(caller, many)
