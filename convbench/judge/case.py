"""One conversation to score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convbench.judge.resolve import Judge
from convbench.schema import Conversation, Example, Mode, ProtocolSpec, Verdict


@dataclass(frozen=True)
class Case:
    """One conversation to score."""

    judge: Judge
    conversation: Conversation
    example: Example
    protocol: ProtocolSpec
    mode: Mode | None = None
    """The run's; without it a function infers it from the prompts."""
    examples: Mapping[str, Example] = field(default_factory=dict)
    """All of the run, for judges that compare with other tasks."""
    asked: int = 0
    """`attempts` of this judge's newest, failed verdict on it: a new try goes on counting, so that
    the journal does not answer with the old replies."""
    several: bool = False
    """Whether its question has other conversations, which are judged too."""
    before: Verdict | None = None
    """That verdict: where turns are judged one by one it keeps the scores that some have."""
