"""What a policy did, conversation by conversation, in columns: some hundred bytes of each."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, overload

from convbench.schema import Verdict
from convbench.store.keys import Hashes, Ordinals
from convbench.store.texts import Texts

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""What most verdicts have of details: one mapping for all of them."""
UNKNOWN = -1
"""What stands for None among whole numbers."""

T = TypeVar("T")


class Scored(NamedTuple):
    """What one judge said of one conversation."""

    fingerprint: str
    scores: Mapping[str, float]
    reward: float | None
    failed: bool
    details: Mapping[str, Any] = NOTHING


class Observation(NamedTuple):
    """One conversation of a policy."""

    unit: str
    """Names the same place in another policy's run: question, sample, temperature."""
    group: str
    """The independent unit."""
    temperature: float | None
    """None where none was sent."""
    failed: bool
    correct: bool | None
    """None where it failed or cannot be graded."""
    unparsed: bool
    """Graded, and no answer could be read."""
    thinking: bool | None
    """Whether the last turn thinks in tags."""
    reasoned: bool | None
    """Whether it was thought of in a channel of its own."""
    flags: tuple[str, ...]
    """Findings of the fidelity checks, `SPEAKER:FINDING`."""
    verdicts: Mapping[str, Scored] = NOTHING
    """By judge."""
    reviews: Mapping[str, Scored] = NOTHING
    """By judge, of those that review the simulated human."""
    talk: str = ""
    """conversation_id."""
    words: int | None = None
    """Words of the policy's turns."""


class Observations(Sequence[Observation]):
    """Observations that are made when they are looked at: of a place, by `_made`."""

    @overload
    def __getitem__(self, at: int) -> Observation: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Observation, ...]: ...
    def __getitem__(self, at: int | slice) -> Observation | tuple[Observation, ...]:
        places = range(len(self))[at]
        return self._made(places) if isinstance(places, int) else tuple(map(self._made, places))

    @abstractmethod
    def _made(self, at: int) -> Observation:
        """Return the one at a place from 0."""


class Rows(Observations):
    """A policy's observations. They lie in columns and are made again each time they are looked
    at."""

    def __init__(self) -> None:
        self._units, self._groups, self._talks = Texts(), Texts(), Texts()
        self._told: Kinds[tuple[Any, ...]] = Kinds()
        """Temperature, how it ended and flags, of which few differ."""
        self._words = array("q")
        self._ids = Hashes()
        self.verdicts, self.reviews = Verdicts(), Verdicts()

    def add(self, row: Observation) -> None:
        """Add one, without what judges said of it."""
        self._units.add(row.unit)
        self._groups.add(row.group)
        self._talks.add(row.talk)
        self._told.add((row.temperature, row.failed, row.correct, row.unparsed, row.thinking,
                        row.reasoned, row.flags))  # fmt: skip
        self._words.append(UNKNOWN if row.words is None else row.words)
        self._ids.add(row.talk)

    def places(self) -> Callable[[str], int | None]:
        """Return what tells where the conversation of an id stands; None where it does not."""
        ordinals = Ordinals(self._ids)

        def place(talk: str) -> int | None:
            at = ordinals.of(talk)
            return at if at is not None and self._talks[at] == talk else None

        return place

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[Observation]:
        return map(self._made, range(len(self)))

    def _made(self, at: int) -> Observation:
        told, words = self._told[at], self._words[at]
        names = self._units[at], self._groups[at]
        said = self.verdicts.of(at), self.reviews.of(at)
        return Observation._make(
            (*names, *told, *said, self._talks[at], None if words == UNKNOWN else words)
        )


def at(rows: Iterable[Observation], temperature: float | None) -> Iterator[Observation]:
    """Yield those of one temperature."""
    return (row for row in rows if row.temperature == temperature)


class Pooled(Observations):
    """Observations of several policies as one's, each by another name of its unit."""

    def __init__(self, parts: Sequence[tuple[str, Sequence[Observation]]]) -> None:
        """`parts` are (what names of units begin with, observations)."""
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._parts)

    def __iter__(self) -> Iterator[Observation]:
        return (_of(head, row) for head, rows in self._parts for row in rows)

    def _made(self, at: int) -> Observation:
        for head, rows in self._parts:
            if at < len(rows):
                return _of(head, rows[at])
            at -= len(rows)
        raise IndexError(at)


def _of(head: str, row: Observation) -> Observation:
    return row._replace(unit=f"{head}{row.unit}")


class Verdicts:
    """What judges said, in columns: some 35 bytes of a verdict and 8 of each score."""

    def __init__(self) -> None:
        self._last = array("i")
        """The newest verdict on each conversation, 0 for none; and the one before each verdict."""
        self._before, self._failed = array("i", [0]), bytearray(1)
        self._heads: Kinds[tuple[str, str, tuple[str, ...]]] = Kinds()
        """Judge, fingerprint and what it scores."""
        self._heads.add(("", "", ()))
        self._rewards, self._starts = array("d", [0.0]), array("q", [0])
        self._bare = bytearray(1)
        """Whether there is no reward."""
        self._scores = array("d")
        self._details: dict[int, Mapping[str, Any]] = {}

    def add(self, at: int, verdict: Verdict) -> None:
        """Add a verdict on the conversation at a place."""
        missing = at + 1 - len(self._last)
        if missing > 0:
            self._last.frombytes(bytes(missing * self._last.itemsize))
        self._before.append(self._last[at])
        self._last[at] = len(self._failed)
        if verdict.details:
            self._details[len(self._failed)] = verdict.details
        self._failed.append(verdict.failure is not None)
        self._heads.add((verdict.judge, verdict.fingerprint, tuple(verdict.scores)))
        self._bare.append(verdict.reward is None)
        self._rewards.append(verdict.reward or 0.0)
        self._starts.append(len(self._scores))
        self._scores.extend(verdict.scores.values())

    def of(self, at: int) -> Mapping[str, Scored]:
        """Return what judges said of the conversation at a place, those that came first before."""
        one = self._last[at] if at < len(self._last) else 0
        if not one:
            return NOTHING
        found: list[tuple[str, Scored]] = []
        while one:
            judge, fingerprint, names = self._heads[one]
            start = self._starts[one]
            scores = self._scores[start : start + len(names)]
            reward = None if self._bare[one] else self._rewards[one]
            found.append((judge, Scored(
                fingerprint, dict(zip(names, scores, strict=True)), reward,
                bool(self._failed[one]), self._details.get(one, NOTHING),
            )))  # fmt: skip
            one = self._before[one]
        return dict(reversed(found))


class Kinds(Generic[T]):
    """Values of which few differ: each once, and 4 bytes a place."""

    def __init__(self) -> None:
        self._all: list[T] = []
        self._number: dict[T, int] = {}
        self._at = array("i")

    def add(self, value: T) -> None:
        """Add a value."""
        number = self._number.setdefault(value, len(self._all))
        if number == len(self._all):
            self._all.append(value)
        self._at.append(number)

    def __getitem__(self, at: int) -> T:
        return self._all[self._at[at]]
