"""Which rows of CoSQL are questions that stand alone, and which dialogue each belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

GOAL, FIRST = -1, 0
"""`turn_idx` of a dialogue's overall goal and of its first turn."""


@dataclass(frozen=True)
class Alone:
    """A question that can be understood without the turns before it."""

    key: str
    """Unique id."""
    dialogue: str
    """Id of the dialogue it was asked in."""
    text: str
    """What the user asked, as one line."""
    row: Mapping[str, Any]
    """The row it comes from."""


def stand_alone(rows: Iterable[Mapping[str, Any]]) -> Iterator[Alone | str]:
    """Yield goals, then first turns, each distinct question once; for any other row a reason.

    Later turns depend on earlier ones. A goal often repeats its dialogue's first turn.
    """
    kept: dict[int, list[Alone]] = {GOAL: [], FIRST: []}
    for dialogue, row in _dialogues(rows):
        turn = row["turn_idx"]
        if turn in kept:
            kept[turn].append(_asked(row, dialogue))
        else:
            yield "a later turn, which does not stand alone"
    seen: set[str] = set()
    for asked in kept[GOAL] + kept[FIRST]:
        question = asked.text.casefold()
        yield "the same question as another row" if question in seen else asked
        seen.add(question)


def _dialogues(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each row with its dialogue's id.

    The rows carry no dialogue id. A dialogue's rows follow each other, with one first turn and at
    most one goal (after or before the turns), so that a second one begins the next dialogue.
    """
    number = 0
    database: str | None = None
    seen: set[int] = set()
    for row in rows:
        turn = row["turn_idx"]
        if row["db_id"] != database or turn in seen:
            number, database, seen = number + 1, row["db_id"], set()
        seen.add(turn)
        yield f"{database}-{number}", row


def _asked(row: Mapping[str, Any], dialogue: str) -> Alone:
    """Return the question of a goal or first turn."""
    kind = "goal" if row["turn_idx"] == GOAL else "first"
    utterances = row["utterances"]
    text = " ".join((utterances[-1] if utterances else "").split())
    return Alone(f"{dialogue}-{kind}", dialogue, text, row)
