"""What a policy did, conversation by conversation, in a file: 16 bytes of each are held."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from convbench.schema import Verdict
from convbench.store.keys import Hashes, Ordinals
from convbench.store.made import Made
from convbench.store.stored import Stored

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""What most verdicts have of details: one mapping for all of them."""
UNKNOWN = -1
"""What stands for no place."""
Given = tuple[tuple[float, ...], float | None, bool, dict[str, Any] | None]
"""Scores, reward, whether it failed, and details."""


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


class Rows(Made[Observation]):
    """A policy's observations. They lie in a file and are made again each time they are looked
    at."""

    def __init__(self) -> None:
        self._rows: Stored[tuple[str, str, str, int | None, int]] = Stored()
        """Unit, group, talk, words, and the number of what is told."""
        self._told: list[tuple[Any, ...]] = []
        """Temperature, how it ended and flags, of which few differ."""
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._ids = Hashes()
        self.verdicts, self.reviews = Verdicts(), Verdicts()

    def add(self, row: Observation) -> None:
        """Add one, without what judges said of it."""
        told = (row.temperature, row.failed, row.correct, row.unparsed, row.thinking,
                row.reasoned, row.flags)  # fmt: skip
        number = self._numbers.setdefault(told, len(self._told))
        if number == len(self._told):
            self._told.append(told)
        self._rows.add((row.unit, row.group, row.talk, row.words, number))
        self._ids.add(row.talk)

    def places(self) -> Callable[[str], int | None]:
        """Return what tells where the conversation of an id stands; None where it does not."""
        ordinals = Ordinals(self._ids)

        def place(talk: str) -> int | None:
            at = ordinals.of(talk)
            return at if at is not None and self._rows[at][2] == talk else None

        return place

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Observation]:
        return map(self._made, range(len(self)))

    def _made(self, at: int) -> Observation:
        unit, group, talk, words, number = self._rows[at]
        said = self.verdicts.of(at), self.reviews.of(at)
        return Observation._make((unit, group, *self._told[number], *said, talk, words))


def at(rows: Iterable[Observation], temperature: float | None) -> Iterator[Observation]:
    """Yield those of one temperature."""
    return (row for row in rows if row.temperature == temperature)


class Pooled(Made[Observation]):
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
    """What judges said, in a file: memory holds 8 bytes of a conversation."""

    def __init__(self) -> None:
        self._last = array("q")
        """The newest verdict on each conversation, UNKNOWN for none."""
        self._given: Stored[tuple[int, int, Given]] = Stored()
        """The one before it on its conversation, whose it is, and what was given."""
        self._heads: list[tuple[str, str, tuple[str, ...]]] = []
        """Judge, fingerprint and what it scores."""
        self._numbers: dict[tuple[str, str, tuple[str, ...]], int] = {}

    def add(self, at: int, verdict: Verdict) -> None:
        """Add a verdict on the conversation at a place."""
        missing = at + 1 - len(self._last)
        if missing > 0:
            self._last.extend([UNKNOWN] * missing)
        head = (verdict.judge, verdict.fingerprint, tuple(verdict.scores))
        number = self._numbers.setdefault(head, len(self._heads))
        if number == len(self._heads):
            self._heads.append(head)
        given = (tuple(verdict.scores.values()), verdict.reward, verdict.failure is not None,
                 dict(verdict.details) or None)  # fmt: skip
        self._last[at] = self._given.add((self._last[at], number, given))

    def of(self, at: int) -> Mapping[str, Scored]:
        """Return what judges said of the conversation at a place, those that came first before."""
        one = self._last[at] if at < len(self._last) else UNKNOWN
        if one == UNKNOWN:
            return NOTHING
        found: list[tuple[str, Scored]] = []
        while one != UNKNOWN:
            one, number, (values, reward, failed, details) = self._given[one]
            judge, mark, names = self._heads[number]
            scores = dict(zip(names, values, strict=True))
            found.append((judge, Scored._make((mark, scores, reward, failed, details or NOTHING))))
        found.reverse()
        return dict(found)
