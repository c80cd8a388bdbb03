"""One conversation of the log that is learnt from: held in memory, or read where it lies."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
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
    """Where a conversation's record lies, and what puts it in order."""

    example_id: str
    sample: int
    run: Run
    talks: Talks
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


class Log:
    """Makes items of a run's conversations, which are held where there are few.

    They are in order by question and sample: the order in which they ended hangs on the machine,
    and a training's batches on the order of its rows. Of those that are not held, columns of
    numbers grow while records are read, so that their objects do not lie scattered among what is
    read and thrown away.
    """

    def __init__(self, run: Run, large: int = LARGE) -> None:
        self._run = run
        self._large = sum(map(size_of, run.files("conversations.jsonl"))) > large
        self._held: list[Logged] = []
        self._names: list[str] = []
        self._rewards, self._starts = array("d"), array("q")
        self._samples, self._lengths, self._files = array("q"), array("q"), array("q")
        self._turns: dict[int, tuple[float, ...]] = {}
        self._paths: dict[Path, int] = {}

    def add(self, told: Told, reward: float, turns: tuple[float, ...]) -> None:
        """Add a conversation with its rewards."""
        talk = told.conversation
        if not self._large:
            self._held.append(Logged(talk, self._run.examples[talk.example_id], reward, turns))
            return
        if turns:
            self._turns[len(self._names)] = turns
        self._names.append(intern(talk.example_id))
        self._rewards.append(reward)
        self._starts.append(told.start)
        self._samples.append(talk.sample)
        self._lengths.append(len(told.line))
        self._files.append(self._paths.setdefault(told.path, len(self._paths)))

    def items(self) -> tuple[Logged, ...]:
        """Return them in order."""
        found = list(self._kept()) if self._large else self._held
        found.sort(key=_sample)
        found.sort(key=_question)
        ordered: list[Logged] = []
        for _, some in groupby(found, key=_question):
            group = list(some)
            if len(set(map(_sample, group))) < len(group):  # branches of one conversation
                group.sort(key=lambda item: (item.talk.sample, item.conversation.key))
            ordered += group
        return tuple(ordered)

    def _kept(self) -> Iterator[Logged]:
        talks = [Talks(path) for path in self._paths]
        for at, name in enumerate(self._names):
            kept = Kept(name, self._samples[at], self._run, talks[self._files[at]],
                        self._starts[at], self._lengths[at])  # fmt: skip
            yield Logged(kept, None, self._rewards[at], self._turns.get(at, ()))


def _question(item: Logged) -> str:
    return item.talk.example_id


def _sample(item: Logged) -> int:
    return item.talk.sample
