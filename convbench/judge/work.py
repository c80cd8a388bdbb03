"""The interface to judge kinds: the run to judge, and the tools that a kind opens for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from convbench.engine.caller import Caller
from convbench.judge.ask import ModelCaller
from convbench.judge.resolve import Judge
from convbench.models.model import Model
from convbench.options.shared import CallOptions
from convbench.rollout.calls import max_calls, open_caller
from convbench.store import Run


@dataclass(frozen=True)
class JudgeWork:
    """One judge and one run, whose lock is held."""

    run: Run
    judge: Judge
    calls: CallOptions

    def open_caller(self, concurrency: int, *models: Model) -> AbstractAsyncContextManager[Caller]:
        """Open a caller with budget, journal and progress."""
        return open_caller(self.run, self.calls, f"judge {self.judge.name}", concurrency, models)


@dataclass(frozen=True)
class JudgeTools:
    """What a judge kind opens for its run."""

    caller: ModelCaller | None = None
    concurrency: int = 1
    """Number of conversations to score concurrently."""
    kind_state: Any = None
    """State of the kind itself, such as the judge's model or a learner."""


@asynccontextmanager
async def open_without_model(work: JudgeWork) -> AsyncIterator[tuple[Caller, JudgeTools]]:
    """Open a caller for a judge that asks no model."""
    many = max_calls(work.calls, [])
    async with work.open_caller(many) as caller:
        yield caller, JudgeTools(caller, many)
