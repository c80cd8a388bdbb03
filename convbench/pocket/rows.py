"""Make the rows of the pocket tasks from a seed; they are the same everywhere."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from convbench.pocket import notes, texts
from convbench.pocket.questions import (
    Question,
    draw_clarify_question,
    draw_fact_question,
    draw_wish,
)
from convbench.pocket.world import World, make_world

SIZES: Final = {"train": 2400, "validation": 300, "test": 800}
"""Questions of each split, for the kinds that are drawn."""
NOTE_SPLITS: Final = {"train": 64, "validation": 16, "test": 40}
"""Passages of each split; there are 120."""

_DRAWS: Final[Mapping[str, Callable[[World, random.Random], Question]]] = {
    "facts": draw_fact_question,
    "clarify": draw_clarify_question,
    "collaboration": draw_wish,
}
KINDS: Final = (*_DRAWS, "notes")


def load(*, seed: int, kind: str = "facts") -> Iterator[dict[str, Any]]:
    """Return an iterator over the rows of one kind: `facts`, `clarify`, `collaboration` or `notes`.

    There are 2,400 train, 300 validation and 800 test questions in drawn order, with keys as in
    `question_row`, or 64, 16 and 40 passages (`note_row`). The seed draws the questions, and the
    order of the passages; the world and the split of a question do not depend on it. Raise
    ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"pocket rows: unknown kind {kind!r}; expected one of {', '.join(KINDS)}")
    if kind == "notes":
        return _note_rows(make_world(), seed)
    return _question_rows(make_world(), kind, seed)


def _question_rows(world: World, kind: str, seed: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(f"rows {kind} {seed}")
    left, seen = dict(SIZES), set[str]()
    while any(left.values()):
        question = _DRAWS[kind](world, rng)
        if question.key not in seen and left.get(question.split):
            seen.add(question.key)
            left[question.split] -= 1
            yield question_row(question)


def question_row(question: Question) -> dict[str, Any]:
    """Return the row of a question.

    Keys are `id`, `split`, `group` (the id), `question`, `choices`, `answer` (a letter), `kind`,
    `property`, and a hidden field: `reference` for a wish (property and value sought, as "color
    red"), else `unknown` (letters of the options whose facts the policy has not read).
    """
    key = f"{question.kind}-{hashlib.sha256(question.key.encode()).hexdigest()[:12]}"
    row: dict[str, Any] = {
        "id": key,
        "split": question.split,
        "group": key,
        "question": question.text,
        "choices": list(question.options),
        "answer": question.answer,
        "kind": question.kind,
        "property": question.prop,
    }
    if question.kind == "wish":
        return {**row, "reference": f"{question.prop} {question.need}"}
    return {**row, "unknown": list(question.unknown)}


def _note_rows(world: World, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of all passages, the same for every seed, in an order drawn by it."""
    splits = [split for split, count in NOTE_SPLITS.items() for _ in range(count)]
    numbered = list(enumerate(zip(notes.make_notes(world, 0), splits, strict=True)))
    random.Random(f"rows notes {seed}").shuffle(numbered)
    for number, (note, split) in numbered:
        yield note_row(f"note-{number}", split, note)


def note_row(key: str, split: str, note: notes.Note) -> dict[str, Any]:
    """Return the row of a passage.

    Keys are `id`, `split`, `group` (the id), `question` and `title` (both the title), `passage`,
    and `questions`: a closed-book `question` and one-word `answer` for each fact.
    """
    return {
        "id": key,
        "split": split,
        "group": key,
        "question": note.title,
        "title": note.title,
        "passage": note.passage,
        "questions": [
            {"question": fact.say(texts.CLOSED_BOOK), "answer": fact.value} for fact in note.facts
        ],
    }
