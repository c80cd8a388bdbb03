"""The interface to judge kinds: the case to score, the run it is of, and the tools a kind opens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from convbench.engine.caller import Caller
from convbench.engine.session import Session
from convbench.judges.ask import ModelCaller
from convbench.judges.resolve import Judge
from convbench.models.model import Model
from convbench.options.shared import CallOptions
from convbench.rollout.calls import max_calls, open_caller
from convbench.schema import Conversation, Example, Mode, ProtocolSpec, Verdict
from convbench.store import Run


@dataclass(frozen=True)
class Case:
    """One conversation to score, with its context."""

    judge: Judge
    conversation: Conversation
    example: Example
    protocol: ProtocolSpec
    mode: Mode | None = None
    """The run's mode; without it a function infers it from the prompts."""
    examples: Mapping[str, Example] = field(default_factory=dict)
    """All examples of the run, for judges that compare with other tasks."""
    attempts: int = 0
    """Attempts of this judge's newest, failed verdict: a retry continues the count, so that the
    journal does not answer with the old replies."""
    several: bool = False
    """Whether the question has several conversations to judge."""
    previous: Verdict | None = None
    """That failed verdict. If turns are judged one by one it has the scores of some turns."""


@dataclass(frozen=True)
class JudgeWork:
    """One judge and one run, whose lock is held."""

    run: Run
    judge: Judge
    calls: CallOptions
    session: Session

    def open_caller(self, concurrency: int, *models: Model) -> AbstractAsyncContextManager[Caller]:
        """Open a caller with budget, journal and progress."""
        label = f"judge {self.judge.name}"
        return open_caller(self.run, self.calls, self.session, label, concurrency, models)


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
    """Open a caller for a judge that asks no model, yield (caller, tools), and close it.

    The tools' `kind_state` is None.
    """
    many = max_calls(work.calls, [])
    async with work.open_caller(many) as caller:
        yield caller, JudgeTools(caller, many)
