"""One conversation of the log that is learnt from: held in memory, or read where it lies."""

from __future__ import annotations

from dataclasses import dataclass, field

from convbench.schema import Conversation, Example
from convbench.store.places import Records
from convbench.store.run import Run


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a conversation's record lies, and what puts it in order."""

    example_id: str
    sample: int
    run: Run
    talks: Records[Conversation]
    start: int
    length: int

    def read(self) -> Conversation:
        """Return the conversation."""
        return self.talks.read(self.start, self.length)


@dataclass(frozen=True, slots=True)
class Logged:
    """One conversation of the logged dataset D = {(x, tau, r)} (Mukherjee et al. 2025, Alg. 1)."""

    talk: Conversation | Kept
    asked: Example | None
    """Its question; of a kept one, which is read as needed, nothing."""
    reward: float
    turns: tuple[float, ...] = ()
    """Rewards of the policy's own turns, where their judge scored turns."""
    run: Run | None = None
    """The run that holds it, where a log has several."""
    group: str = ""
    """Name of the question where a log has several runs; else its id."""
    at: int = field(default=-1, compare=False)
    """Its place in a log that lies in files."""

    @property
    def conversation(self) -> Conversation:
        """The conversation, read where it lies if it is not held."""
        if isinstance(self.talk, Kept):
            return self.talk.read()
        return self.talk

    @property
    def example(self) -> Example:
        """Its question."""
        if self.asked is not None:
            return self.asked
        assert isinstance(self.talk, Kept)
        return self.talk.run.examples[self.talk.example_id]

    @property
    def conversation_id(self) -> str:
        """Its name."""
        return self.conversation.conversation_id

    @property
    def task(self) -> str:
        """The context x: all conversations about one question share it."""
        return self.group or self.talk.example_id
