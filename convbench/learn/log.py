"""Conversations of the log that is learnt from: their rewards, and where their records lie."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from convbench.schema import Conversation, Example
from convbench.store.byte_offsets import size_of
from convbench.store.index import ConversationRow
from convbench.store.run import Run

LARGE = 32 << 20
"""Most bytes of a run's conversations that are kept in memory after they are read."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """Readers of one file of a run: of its conversations and their questions."""

    read: Callable[[int, int], Conversation]
    """Returns the conversation of the record with this offset and length in bytes."""
    find_example: Callable[[str], Example]
    """Returns the question with this id."""


@dataclass(frozen=True, slots=True)
class LoggedConversation:
    """One conversation of the logged dataset D = {(x, tau, r)} (Mukherjee et al. 2025, Alg. 1)."""

    file: LogFile
    start: int
    length: int
    example_id: str
    sample: int
    reward: float
    turns: tuple[float, ...] = ()
    """Rewards of the policy's own turns; empty if the judge did not score turns."""
    run: Run | None = None
    """The run that holds it, in a log of several runs."""
    group: str = ""
    """Name of the question in a log of several runs; "" stands for its id."""

    @classmethod
    def from_conversation(
        cls, conversation: Conversation, example: Example, reward: float
    ) -> LoggedConversation:
        """Return a logged conversation that is held in memory and lies in no file."""
        file = LogFile(lambda *_: conversation, lambda _: example)
        return cls(file, 0, 0, example.example_id, conversation.sample, reward)

    @property
    def conversation(self) -> Conversation:
        """The conversation, read from its file."""
        return self.file.read(self.start, self.length)

    @property
    def example(self) -> Example:
        """The question of the conversation."""
        return self.file.find_example(self.example_id)

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        return self.conversation.conversation_id

    @property
    def task(self) -> str:
        """The name of the question, the context x that its conversations share."""
        return self.group or self.example_id


class LogFiles:
    """Readers of a run's files; conversations of a large run are read again at each use."""

    def __init__(self, run: Run, large: int = LARGE) -> None:
        self._run = run
        self._large = sum(map(size_of, [run.path / "conversations.jsonl"])) > large
        self._files: dict[Path, LogFile] = {}

    def with_rewards(
        self, row: ConversationRow, reward: float, turns: tuple[float, ...]
    ) -> LoggedConversation:
        """Return the logged conversation of a row of the index, with its rewards."""
        file = self._files.get(row.path)
        if file is None:
            file = self._files[row.path] = self._open_file(row.path)
        name = sys.intern(row.example_id)  # the text once for all of a question
        return LoggedConversation(file, row.start, row.length, name, row.sample, reward, turns)

    def _open_file(self, path: Path) -> LogFile:
        run = self._run

        def read_record(start: int, length: int) -> Conversation:
            return run.read_conversation(path, start, length)

        return LogFile(
            read_record if self._large else cache(read_record), lambda name: run.examples[name]
        )


def sort_conversations(items: Iterable[LoggedConversation]) -> Sequence[LoggedConversation]:
    """Return conversations ordered by question and sample, of the same by their keys.

    The order in which they ended depends on the machine, and a training's batches depend on the
    order of its rows."""
    ordered = sorted(sorted(items, key=attrgetter("sample")), key=attrgetter("example_id"))
    start = 0
    for _, same_sample in groupby(ordered, key=lambda item: (item.example_id, item.sample)):
        group = list(same_sample)
        if len(group) > 1:
            group.sort(key=lambda item: item.conversation.key)
            ordered[start : start + len(group)] = group
        start += len(group)
    return ordered
