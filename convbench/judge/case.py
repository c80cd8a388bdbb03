"""The input of a judge kind: one conversation to score, with its context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convbench.judge.resolve import Judge
from convbench.schema import Conversation, Example, Mode, ProtocolSpec, Verdict


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
