"""Grades of a run's conversations, which the index keeps: a text is graded once, until it, its
question, the protocol or the code that grades changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from convbench import answers, views
from convbench.answers.grade import grade
from convbench.schema import Conversation, fingerprint
from convbench.store import Run
from convbench.store.index import ConversationRow, Index, SidecarTable
from convbench.store.parts import streams
from convbench.store.run import Question
from convbench.store.shape import an_object, checked
from convbench.store.sidecars import hash_files, identify_file
from convbench.views import sent_temperature


class GradeRow(NamedTuple):
    """How one conversation is graded."""

    path: Path
    start: int
    length: int
    temperature: float
    sent_temperature: float | None
    """None where none was sent."""
    correct: bool | None
    """None where it failed or cannot be graded."""
    unparsed: bool
    """Graded, and no answer could be read."""
    thinking: bool | None
    """Whether the last turn thinks in tags."""
    reasoned: bool | None
    """Whether it was thought of in a channel of its own."""
    words: int
    """Words of the policy's turns."""


COLUMNS = {
    "temperature": "double",
    "sent_temperature": "double",
    "correct": "bool",
    "unparsed": "bool",
    "thinking": "bool",
    "reasoned": "bool",
    "words": "int64",
}
NOTHING = (None,) * len(COLUMNS)
"""Columns of a conversation that is not graded: a branch, or one of another split."""


def graded_rows(run: Run, split: str) -> Iterator[tuple[ConversationRow, Question, GradeRow]]:
    """Yield the conversations of a split, or of `all`, branches left out, with their grades.

    Raises RunError as `Run.joined_rows` does, and for a damaged record among them.
    """
    rows = run.joined_rows()  # listed before the grades, of which there may be more by then
    grades = Index(_table(run, split), run.files("conversations.jsonl")).all_rows()
    for row, question in rows:
        if split not in ("all", question.split) or row.is_branch:
            continue
        own = next(one for one in grades if one.start == row.start and one.path == row.path)
        yield row, question, own


def _table(run: Run, split: str) -> SidecarTable[GradeRow]:
    protocol, examples, questions = run.manifest.protocol, run.examples, run.questions

    def read_line(where: str, line: bytes) -> tuple[Any, ...]:
        record = an_object(where, line, ("example_id",))
        question = questions.get(record["example_id"])
        if (
            question is None
            or split not in ("all", question.split)
            or record.get("branch") is not None
        ):
            return NOTHING
        talk = checked(where, line, Conversation)
        graded = grade(protocol, talk, examples[talk.example_id])
        unparsed = graded.correct is not None and graded.answer is None
        return (
            talk.temperature,
            sent_temperature(protocol, talk),
            graded.correct,
            unparsed,
            graded.thinking,
            graded.reasoned,
            graded.words,
        )

    asked = tuple(identify_file(*part) for part in streams(run.examples_file))
    depends_on = f"{split} {fingerprint(protocol)} {asked} {_hash_program()}"
    return SidecarTable("grades", COLUMNS, read_line, GradeRow._make, 0, depends_on)


@cache
def _hash_program() -> str:
    """Return a hash of the code that grades."""
    own = (Path(views.__file__ or ""), Path(__file__))
    return hash_files([*Path(answers.__file__ or "").parent.glob("*.*"), *own])
