"""A run's log: conversations that are held, or read where they lie, in the order that counts.

That order is by question and sample: the order in which they ended hangs on the machine, and a
training's batches on the order of its rows.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from convbench.learn.logged import Kept, Logged
from convbench.schema import Conversation
from convbench.stats.columns import Column
from convbench.store.index import ConversationRow
from convbench.store.made import Made
from convbench.store.places import Records, size_of
from convbench.store.run import Run
from convbench.store.texts import Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGE = 32 << 20
"""Bytes of conversations that are held in memory."""


class Log:
    """Takes conversations in whatever order, and gives them as items in theirs."""

    def __init__(self, run: Run, large: int = LARGE) -> None:
        self._run = run
        self._large = sum(map(size_of, run.files("conversations.jsonl"))) > large
        self._held: list[Logged] = []
        self._names, self._name = Texts(), ""
        """Of questions, again where another one's conversations stood between; the newest."""
        self._questions, self._files = Column(array("i")), Column(array("i"))
        self._samples, self._starts = Column(array("q")), Column(array("q"))
        self._lengths, self._rewards = Column(array("q")), Column(array("d"))
        self._turns, self._ends = Column(array("d")), Column(array("q"))
        """Rewards of turns, of one conversation after the other; behind the last of each."""
        self._paths: dict[Path, int] = {}

    def add(self, row: ConversationRow, reward: float, turns: tuple[float, ...]) -> None:
        """Add a conversation with its rewards."""
        if not self._large:
            talk = self._run.read_conversation(*row[:3])
            self._held.append(Logged(talk, self._run.examples[row.example_id], reward, turns))
            return
        self._turns.extend(turns)
        self._ends.append(len(self._turns))
        if row.example_id != self._name or not len(self._names):
            self._name = row.example_id
            self._names.add(self._name)
        self._questions.append(len(self._names) - 1)
        self._rewards.append(reward)
        self._starts.append(row.start)
        self._samples.append(row.sample)
        self._lengths.append(row.length)
        self._files.append(self._paths.setdefault(row.path, len(self._paths)))

    def items(self) -> Sequence[Logged]:
        """Return them in order."""
        if self._large:
            return self._kept() if len(self._rewards) else ()
        found = sorted(self._held, key=lambda item: (item.talk.example_id, item.talk.sample))
        ordered: list[Logged] = []
        for _, some in groupby(found, key=lambda item: item.talk.example_id):
            group = list(some)
            if len({item.talk.sample for item in group}) < len(group):  # branches of one
                group.sort(key=lambda item: (item.talk.sample, item.conversation.key))
            ordered += group
        return tuple(ordered)

    def _kept(self) -> KeptLog:
        import numpy as np

        names = [self._names[at] for at in range(len(self._names))]
        alphabet = np.argsort(np.array(names, dtype=object), kind="stable")
        ordered, rank = Texts(), np.zeros(len(names), np.int32)
        for number, at in enumerate(alphabet):
            if number == 0 or names[at] != names[alphabet[number - 1]]:
                ordered.add(names[at])
            rank[at] = len(ordered) - 1
        del names, alphabet
        samples, questions = self._samples.whole(), rank[self._questions.whole()]
        order = np.lexsort((samples, questions))
        questions, samples = questions[order], samples[order]
        talks = [Records(path, Conversation) for path in self._paths]
        more = (self._starts, self._lengths, self._files, self._rewards)
        columns = [questions, samples, *(column.whole()[order] for column in more)]
        if len(self._turns):
            ends = self._ends.whole()
            columns += [np.concatenate(([0], ends[:-1]))[order], ends[order]]
        return KeptLog(self._run, talks, ordered, columns, self._turns)


class InFiles(Made[Logged]):
    """A log whose conversations lie in files; one is made when it is looked at."""

    @abstractmethod
    def tasks(self) -> Mapping[str, Sequence[Logged]]:
        """The conversations by question, in the log's order."""


class KeptLog(InFiles):
    """Conversations in order that lie in files: memory holds 40 bytes of each, 56 with rewards of
    turns, and an item is made when it is looked at."""

    def __init__(
        self,
        run: Run,
        talks: Sequence[Records[Conversation]],
        names: Texts,
        columns: Sequence[NDArray[Any]],
        turns: Column[float],
    ) -> None:
        """`names` of questions in order. `columns` are of each conversation its question's place
        among them, its sample, first byte, length, file's number and reward; and where `turns`,
        rewards of turns, has some, where its own begin and end there."""
        self._run, self._talks, self._names = run, talks, names
        self._turns = turns
        self._columns = [array(c.dtype.char, c.tobytes()) for c in columns]  # quicker to look at
        self._settle()

    def _settle(self) -> None:
        """Put those of one question and sample, which are branches, in the order of their keys."""
        import numpy as np

        questions, samples = (np.frombuffer(c, c.typecode) for c in self._columns[:2])
        alike = (questions[1:] == questions[:-1]) & (samples[1:] == samples[:-1])
        done = 0
        for first in np.flatnonzero(alike).tolist():
            if first < done:
                continue
            done = first + 1
            while done < len(self) and alike[done - 1]:
                done += 1
            places = sorted(range(first, done), key=lambda at: self[at].conversation.key)
            for column in self._columns:
                column[first:done] = array(column.typecode, [column[at] for at in places])

    def __len__(self) -> int:
        return len(self._columns[0])

    def _made(self, at: int) -> Logged:
        question, sample, start, length, file, reward, *turns = (c[at] for c in self._columns)
        name = self._names[question]
        kept = Kept(name, sample, self._run, self._talks[file], start, length)
        own = tuple(self._turns.some(*turns)) if turns else ()
        return Logged(kept, None, reward, own, at=at)

    def tasks(self) -> Mapping[str, Sequence[Logged]]:
        """The conversations by question."""
        import numpy as np

        questions = np.frombuffer(self._columns[0], self._columns[0].typecode)
        starts = np.searchsorted(questions, np.arange(len(self._names) + 1))
        return KeptTasks(self, self._names, array("q", starts.tobytes()))


class KeptTask(Sequence[Logged]):
    """The conversations of one question, each made when it is looked at."""

    def __init__(self, log: InFiles, places: Sequence[int]) -> None:
        self._log, self._places = log, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Logged: ...
    @overload
    def __getitem__(self, at: slice) -> KeptTask: ...
    def __getitem__(self, at: int | slice) -> Logged | KeptTask:
        places = self._places[at]
        return self._log[places] if isinstance(places, int) else KeptTask(self._log, places)

    def __iter__(self) -> Iterator[Logged]:
        return map(self._log.__getitem__, self._places)


class KeptTasks(Mapping[str, Sequence[Logged]]):
    """A log by question."""

    def __init__(
        self, log: InFiles, names: Texts, starts: array[int], order: array[int] | None = None
    ) -> None:
        """`starts`: where each question's places begin, in `order` or, without one, in the log."""
        self._log, self._names, self._starts, self._order = log, names, starts, order

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return (self._names[at] for at in range(len(self)))

    def __getitem__(self, name: str) -> Sequence[Logged]:
        for number, known in enumerate(self):  # nothing asks for more than one or two
            if known == name:
                return self.at(number)
        raise KeyError(name)

    def at(self, number: int) -> Sequence[Logged]:
        """Return the conversations of the question at a place."""
        first, end = self._starts[number], self._starts[number + 1]
        places = range(first, end) if self._order is None else self._order[first:end]
        return KeptTask(self._log, places)

    def values(self) -> ValuesView[Sequence[Logged]]:
        """Those of each question, in order."""
        return _Values(self)

    def items(self) -> ItemsView[str, Sequence[Logged]]:
        """The same with the question's name."""
        return _Items(self)


class _Values(ValuesView[Sequence[Logged]]):
    _mapping: KeptTasks

    def __iter__(self) -> Iterator[Sequence[Logged]]:
        return map(self._mapping.at, range(len(self._mapping)))


class _Items(ItemsView[str, Sequence[Logged]]):
    _mapping: KeptTasks

    def __iter__(self) -> Iterator[tuple[str, Sequence[Logged]]]:
        return zip(self._mapping, self._mapping.values(), strict=True)
