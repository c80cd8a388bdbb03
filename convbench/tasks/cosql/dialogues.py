"""Which rows of CoSQL are questions that stand alone, and which dialogue each belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

GOAL, FIRST = -1, 0
"""`turn_idx` of a dialogue's overall goal and of its first turn."""


@dataclass(frozen=True)
class StandaloneQuestion:
    """A question that can be understood without the turns before it."""

    key: str
    """Unique id."""
    dialogue: str
    """Id of the dialogue it was asked in."""
    text: str
    """What the user asked, as one line."""
    row: Mapping[str, Any]
    """The row it comes from."""


def standalone_questions(rows: Iterable[Mapping[str, Any]]) -> Iterator[StandaloneQuestion | str]:
    """Yield goals, then first turns, each distinct question once; for any other row a reason.

    Later turns depend on earlier ones. A goal often repeats its dialogue's first turn.
    """
    by_turn: dict[int, list[StandaloneQuestion]] = {GOAL: [], FIRST: []}
    for dialogue, row in _number_dialogues(rows):
        turn = row["turn_idx"]
        if turn in by_turn:
            by_turn[turn].append(_read_question(row, dialogue))
        else:
            yield "a later turn, which does not stand alone"
    seen: set[str] = set()
    for standalone in by_turn[GOAL] + by_turn[FIRST]:
        question = standalone.text.casefold()
        yield "the same question as another row" if question in seen else standalone
        seen.add(question)


def _number_dialogues(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
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


def _read_question(row: Mapping[str, Any], dialogue: str) -> StandaloneQuestion:
    """Return the question of a goal or first turn."""
    kind = "goal" if row["turn_idx"] == GOAL else "first"
    utterances = row["utterances"]
    text = " ".join((utterances[-1] if utterances else "").split())
    return StandaloneQuestion(f"{dialogue}-{kind}", dialogue, text, row)
