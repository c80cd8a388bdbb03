"""One conversation of the log that is learnt from: held in memory, or read where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from sys import intern

from convbench.schema import Conversation, Example
from convbench.store.places import size_of
from convbench.store.run import Run, Told
from convbench.store.talks import Talks

LARGE = 32 << 20
"""Bytes of conversations that are held in memory."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What names a conversation and its question, and where its record lies."""

    conversation_id: str
    example_id: str
    run: Run
    talks: Talks
    start: int
    length: int

    @classmethod
    def of(cls, run: Run, talks: Talks, told: Told) -> Kept:
        """Keep the place of a conversation."""
        talk = told.conversation
        name = intern(talk.example_id)
        return cls(talk.conversation_id, name, run, talks, told.start, len(told.line))


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

    @property
    def conversation(self) -> Conversation:
        """The conversation, read where it lies if it is not held."""
        if isinstance(self.talk, Kept):
            return self.talk.talks.read(self.talk.start, self.talk.length)
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
        """Its name, for which it is not read."""
        return self.talk.conversation_id

    @property
    def task(self) -> str:
        """The context x: all conversations about one question share it."""
        return self.group or self.talk.example_id


class Keeper:
    """Makes items of a run's conversations, which are held where there are few."""

    def __init__(self, run: Run, large: int = LARGE) -> None:
        self._run = run
        self._held = sum(map(size_of, run.files("conversations.jsonl"))) <= large
        self._talks: dict[Path, Talks] = {}

    def item(self, told: Told, reward: float, turns: tuple[float, ...]) -> Logged:
        """Return a conversation with its rewards."""
        talk = told.conversation
        if self._held:
            return Logged(talk, self._run.examples[talk.example_id], reward, turns)
        if told.path not in self._talks:
            self._talks[told.path] = Talks(told.path)
        kept = Kept.of(self._run, self._talks[told.path], told)
        return Logged(kept, None, reward, turns)


class Ordered:
    """Items by question and sample: the order in which they ended hangs on the machine, and a
    training's batches on the order of its rows."""

    def __init__(self) -> None:
        self._found: list[tuple[tuple[str, int, str], Logged]] = []

    def add(self, told: Told, item: Logged) -> None:
        """Add the item of a conversation."""
        talk = told.conversation
        self._found.append(((intern(talk.example_id), talk.sample, talk.key), item))

    def items(self) -> tuple[Logged, ...]:
        """Return them in order."""
        self._found.sort(key=itemgetter(0))
        return tuple(item for _, item in self._found)
