"""Grades of a run's conversations, from the index: a text is graded once, until it, its question,
the protocol or the code that grades changes. For `query`, grading is a function of SQL, evaluated
where a query uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from convbench import answers, views
from convbench.answers.grade import grade_conversation, grade_texts
from convbench.errors import RunError
from convbench.schema import Conversation, Example, ProtocolSpec, TextPart, fingerprint, text_of
from convbench.schema.conversation import Turn
from convbench.store.index import ConversationRow, Index, SidecarTable
from convbench.store.run import QuestionSplit, Run
from convbench.store.shape import parse_object, parse_record
from convbench.store.sidecars import hash_files, identify_path
from convbench.views import policy_turns, sent_temperature


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
    answered: bool
    """Whether an answer could be read."""
    thinking: bool | None
    """Whether the last turn thinks in tags."""
    reasoned: bool | None
    """Whether it was thought of in a channel of its own."""
    words: int
    """Words of the policy's turns."""


GRADES = {
    "temperature": "double",
    "sent_temperature": "double",
    "correct": "bool",
    "answered": "bool",
    "thinking": "bool",
    "reasoned": "bool",
    "words": "int64",
}
NOTHING = (None,) * len(GRADES)
"""Columns of a conversation of another split, which is not graded."""
SQL_GRADES = {
    "answer": "VARCHAR",
    "correct": "BOOLEAN",
    "thinking": "BOOLEAN",
    "thinking_any": "BOOLEAN",
    "thinking_closed": "BOOLEAN",
    "words": "BIGINT",
}
"""What the SQL function returns of `answers.grade.GradeResult`."""


class Reading(NamedTuple):
    """What a judge of kind `answers` read in a conversation."""

    letter: str | None = None
    """Letter of the option; None if the turn settles on none."""
    gives: bool | None = None
    """Whether the gold text is given; None for a question with options."""

    @property
    def details(self) -> dict[str, Any]:
        """Return it as the details of a verdict."""
        return {"answer": self.letter} if self.gives is None else {"gives_answer": self.gives}


def graded_rows(
    run: Run, split: str, *, read: bool = True
) -> Iterator[tuple[ConversationRow, QuestionSplit, GradeRow]]:
    """Yield (index row, split and group of the question, grade) of each conversation of a split, or
    of `all`.

    What is unread counts as a judge of kind `answers` read it last, unless `read` is false. Only
    the newest conversation of every key is yielded, in the order of the files. Raises RunError as
    `Run.joined_rows` does, and for a damaged record among them.
    """
    rows = run.joined_rows()  # listed before the grades, of which there may be more by then
    readings = _readings(run) if read else {}
    grades = Index(_grades_table(run, split), [run.path / "conversations.jsonl"]).all_rows()
    for row, question in rows:
        if split in ("all", question.split):
            grade, reading = _find_row(grades, row), readings.get(row.conversation_id)
            if reading is not None:
                grade = _as_read(grade, reading, run.examples[row.example_id])
            yield row, question, grade


def _readings(run: Run) -> dict[str, Reading]:
    """Return what judges of kind `answers` read, by conversation; the newest of each."""
    marks = {mark for mark, spec in run.judge_specs().items() if spec.kind == "answers"}
    rows = (row for row in run.verdict_rows() if row.fingerprint in marks and row.scored)
    return {
        row.conversation_id: Reading(row.details.get("answer"), row.details.get("gives_answer"))
        for row in rows
    }


def _as_read(grade: GradeRow, reading: Reading, example: Example) -> GradeRow:
    """Return a grade with an answer that was unread as a judge read it."""
    if not example.choices:
        correct = grade.correct if reading.gives is None else reading.gives
        return grade._replace(correct=correct, answered=grade.answered or bool(reading.gives))
    if grade.answered or reading.letter is None:
        return grade
    correct = None if grade.correct is None else reading.letter == example.answer
    return grade._replace(correct=correct, answered=True)


def count_words(protocol: ProtocolSpec, talk: Conversation) -> int:
    """Return the number of words in the policy's turns of a conversation, 0 if it has none."""
    own = policy_turns(protocol, talk)
    return sum(len(text_of(talk.turns[i].content).split()) for i in own)


def _find_row(rows: Iterator[GradeRow], of: ConversationRow) -> GradeRow:
    """Return the next row of a conversation's record, from rows in the order of the files."""
    for row in rows:
        if row.start == of.start and row.path == of.path:
            return row
    raise RunError(f"{of.path}: changed while it was read; repeat the command")


def _grades_table(run: Run, split: str) -> SidecarTable[GradeRow]:
    protocol, examples, questions = run.manifest.protocol, run.examples, run.questions

    def read_line(where: str, line: bytes) -> tuple[Any, ...]:
        record = parse_object(where, line, ("example_id",))
        question = questions.get(record["example_id"])
        if question is None or split not in ("all", question.split):
            return NOTHING
        talk = parse_record(where, line, Conversation)
        graded = grade_conversation(protocol, talk, examples[talk.example_id])
        return (
            talk.temperature,
            sent_temperature(protocol, talk),
            graded.correct,
            graded.answer is not None,
            graded.thinking,
            graded.reasoned,
            graded.words,
        )

    questions_identity = identify_path(run.examples_file)
    depends_on = f"{split} {fingerprint(protocol)} {questions_identity} {_hash_program()}"
    return SidecarTable("grades", GRADES, read_line, GradeRow._make, 0, depends_on, is_slow=True)


@cache
def _hash_program() -> str:
    """Return a hash of the code that grades."""
    own = (Path(views.__file__ or ""), Path(__file__))
    return hash_files([*Path(answers.__file__ or "").parent.glob("*.*"), *own])


def register_functions(connection: Any, runs: Sequence[Run]) -> None:
    """Give a DuckDB connection the SQL functions `graded` and `parts`.

    `graded` takes (index of the run in `runs`, failed, texts of the policy, choice labels, choice
    texts, gold answer) and returns a struct with the fields of `SQL_GRADES`. `parts` is
    `content_text`.
    """
    import pyarrow

    returned = "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in SQL_GRADES.items()) + ")"
    protocols = [run.manifest.protocol for run in runs]
    arrow = {"VARCHAR": pyarrow.string(), "BOOLEAN": pyarrow.bool_(), "BIGINT": pyarrow.int64()}
    kind = pyarrow.struct([(name, arrow[sql]) for name, sql in SQL_GRADES.items()])

    def grade_rows(
        numbers: Any, failed: Any, contents: Any, letters: Any, texts: Any, gold: Any
    ) -> Any:
        columns = (
            column.to_pylist() for column in (numbers, failed, contents, letters, texts, gold)
        )
        rows = [_grade_record(protocols[row[0]], *row[1:]) for row in zip(*columns, strict=True)]
        return pyarrow.array(rows, type=kind)

    connection.create_function(
        "graded",
        grade_rows,
        ["INTEGER", "BOOLEAN", "VARCHAR[]", "VARCHAR[]", "VARCHAR[]", "VARCHAR"],
        returned,
        type="arrow",
        null_handling="special",
    )
    connection.create_function("parts", content_text, ["VARCHAR"], "VARCHAR")


def _grade_record(
    protocol: ProtocolSpec,
    failed: bool,
    contents: list[str | None] | None,
    letters: list[str] | None,
    texts: list[str] | None,
    gold: str | None,
) -> dict[str, Any]:
    """Grade what the policy said, by the one function that grades."""
    graded = grade_texts(
        [text or "" for text in contents or ()],
        dict(zip(letters or (), texts or (), strict=True)),
        gold,
        protocol.answer_after,
    )
    hidden = {*SQL_GRADES} - {"words"} if failed else set()
    return {name: None if name in hidden else getattr(graded, name) for name in SQL_GRADES}


def content_text(content: str) -> str:
    """Return the text of a message's content of several parts, given as JSON: its texts, one a
    line.

    An image gives `[image]`. Content that is no JSON list of parts is returned unchanged.
    """
    import orjson

    try:
        turn = Turn(speaker="x", step="x", content=orjson.loads(content))
    except ValueError:
        return content
    if isinstance(turn.content, str):
        return content
    return "\n".join(p.text if isinstance(p, TextPart) else "[image]" for p in turn.content)
