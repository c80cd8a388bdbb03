"""One conversation of the log that is learnt from: its reward, and where its record lies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from convbench.schema import Conversation, Example
from convbench.store.index import ConversationRow
from convbench.store.places import size_of
from convbench.store.run import Run

LARGE = 32 << 20
"""Bytes of conversations of a run that are held once they were read."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """Reads conversations of one file of a run, and its questions."""

    read: Callable[[int, int], Conversation]
    """The conversation whose record begins at this byte and is so long."""
    find_example: Callable[[str], Example]
    """The question of this name."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One conversation of the logged dataset D = {(x, tau, r)} (Mukherjee et al. 2025, Alg. 1)."""

    file: LogFile
    start: int
    length: int
    example_id: str
    sample: int
    reward: float
    turns: tuple[float, ...] = ()
    """Rewards of the policy's own turns, where their judge scored turns."""
    run: Run | None = None
    """The run that holds it, where a log has several."""
    group: str = ""
    """Name of the question where a log has several runs; else its id."""

    @classmethod
    def of(cls, conversation: Conversation, example: Example, reward: float) -> Logged:
        """Return a conversation that lies in no file."""
        file = LogFile(lambda *_: conversation, lambda _: example)
        return cls(file, 0, 0, example.example_id, conversation.sample, reward)

    @property
    def conversation(self) -> Conversation:
        """The conversation, read where it lies."""
        return self.file.read(self.start, self.length)

    @property
    def example(self) -> Example:
        """Its question."""
        return self.file.find_example(self.example_id)

    @property
    def conversation_id(self) -> str:
        """Its name."""
        return self.conversation.conversation_id

    @property
    def task(self) -> str:
        """The context x: all conversations about one question share it."""
        return self.group or self.example_id


class LogFiles:
    """The files of a run, of which a large one's conversations are read again each time."""

    def __init__(self, run: Run, large: int = LARGE) -> None:
        self._run = run
        self._large = sum(map(size_of, run.files("conversations.jsonl"))) > large
        self._files: dict[Path, LogFile] = {}

    def item(self, row: ConversationRow, reward: float, turns: tuple[float, ...]) -> Logged:
        """Return a conversation with its rewards."""
        file = self._files.get(row.path)
        if file is None:
            file = self._files[row.path] = self._open_file(row.path)
        name = sys.intern(row.example_id)  # the text once for all of a question
        return Logged(file, row.start, row.length, name, row.sample, reward, turns)

    def _open_file(self, path: Path) -> LogFile:
        run = self._run

        def read(start: int, length: int) -> Conversation:
            return run.read_conversation(path, start, length)

        return LogFile(read if self._large else cache(read), lambda name: run.examples[name])


def in_order(items: Iterable[Logged]) -> Sequence[Logged]:
    """Return conversations by question and sample, branches of one by their keys: the order in
    which they ended hangs on the machine, and a training's batches on the order of its rows."""
    ordered = sorted(sorted(items, key=attrgetter("sample")), key=attrgetter("example_id"))
    start = 0
    for _, some in groupby(ordered, key=lambda item: (item.example_id, item.sample)):
        group = list(some)
        if len(group) > 1:
            group.sort(key=lambda item: item.conversation.key)
            ordered[start : start + len(group)] = group
        start += len(group)
    return ordered
