"""The questions of imported rows: each once, with a check that its rows agree on it.

They are stored in a temporary SQLite database, which spills to disk, so that a file of any length
is imported in constant memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import orjson

from convbench.errors import DataError
from convbench.formats.chats import LoggedChat
from convbench.schema import Choice, Example, fingerprint
from convbench.schema.run import MOST_SAMPLES

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
AGREED = ("split", "group_id", "answer", "hidden")
"""Fields that must be equal in all rows about one question."""
TABLES = (
    "CREATE TABLE seen (key BLOB PRIMARY KEY, line INTEGER, samples INTEGER, said BLOB) "
    "WITHOUT ROWID",
    "CREATE TABLE units (unit BLOB PRIMARY KEY, line INTEGER, split TEXT) WITHOUT ROWID",
)


def question_key(chat: LoggedChat) -> str:
    """Return the id of a conversation's question: its `example_id`, its `group`, or a fingerprint
    of system prompt, question and first user message."""
    if chat.example is not None:
        return chat.example
    if chat.group is not None:
        return chat.group
    first = next((text for role, text in chat.dialogue.messages if role == "user"), "")
    return fingerprint(chat.dialogue.system, chat.question, first)


def example_of(name: str, chat: LoggedChat) -> Example:
    """Return the question of a row as an example of the task `name`: in split train if the row
    names none, in a group of its own without `group`.

    Its text is the row's `question`, else the first user message, else empty. Options get the
    letters A, B, C and so on.
    """
    first = next((text for role, text in chat.dialogue.messages if role == "user"), "")
    choices = tuple(
        Choice(label=label, text=text) for label, text in zip(LETTERS, chat.choices, strict=False)
    )
    key = question_key(chat)
    return Example(
        example_id=key,
        task=name,
        split=chat.split or "train",
        group_id=chat.group or key,
        question=chat.question or first,
        choices=choices,
        answer=chat.answer,
        hidden=dict(chat.hidden),
    )


class Questions:
    """Numbers rows, taken one by one, as samples of their questions."""

    def __init__(self, name: str, base: sqlite3.Connection) -> None:
        self.name = name
        """Name of the file, for errors."""
        self._base = base

    @classmethod
    @contextmanager
    def open_database(cls, name: str) -> Iterator[Questions]:
        """Yield an empty set of questions in a temporary database, which is deleted at the end.

        `name` is the file's, for errors.
        """
        with closing(sqlite3.connect("", isolation_level=None)) as base:
            for statement in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", *TABLES):
                base.execute(statement)
            yield cls(name, base)

    def __len__(self) -> int:
        return int(self._base.execute("SELECT count(*) FROM seen").fetchone()[0])

    def add_row(self, line: int, example: Example) -> int:
        """Add a row and return its number among the samples of its question, from 0.

        Raise DataError if it disagrees with an earlier row on split, group, answer or hidden fields
        of its question, or on the split of its group.
        """
        key = _key_bytes(example.example_id)
        fields = example.model_dump_json(include=set(AGREED)).encode()
        cursor = self._base.execute("SELECT line, samples, said FROM seen WHERE key = ?", [key])
        before = cursor.fetchone()
        if before is None:
            self._check_split(line, example)
            self._base.execute("INSERT INTO seen VALUES (?, ?, 1, ?)", [key, line, fields])
            return 0
        first, samples, agreed = before
        if agreed != fields:
            self._refuse_disagreement(line, first, example.example_id, fields, agreed)
        self._base.execute("UPDATE seen SET samples = samples + 1 WHERE key = ?", [key])
        return int(samples)

    def _refuse_disagreement(
        self, line: int, first: int, key: str, fields: bytes, agreed: bytes
    ) -> None:
        new, old = orjson.loads(fields), orjson.loads(agreed)
        for name in AGREED:
            if (old_value := old[name]) != (new_value := new[name]):
                raise DataError(
                    f"{self.name}:{line}: {name} {new_value!r:.200}, but line {first} has "
                    f"{old_value!r:.200} for the same question {key!r}; expected one for all its "
                    "samples"
                )

    def _check_split(self, line: int, example: Example) -> None:
        unit = _key_bytes(example.group_id)
        cursor = self._base.execute("SELECT line, split FROM units WHERE unit = ?", [unit])
        before = cursor.fetchone()
        if before is None:
            self._base.execute("INSERT INTO units VALUES (?, ?, ?)", [unit, line, example.split])
        elif before[1] != example.split:
            raise DataError(
                f"{self.name}:{line}: group {example.group_id!r} is in {example.split}, but in "
                f"{before[1]} on line {before[0]}; expected a group in one split"
            )

    def most_samples(self) -> int:
        """Return the largest number of samples of a question; at least one row must have been
        added. Raise DataError if it is more than a run may have."""
        row = self._base.execute(
            "SELECT samples, key FROM seen ORDER BY samples DESC, line LIMIT 1"
        ).fetchone()
        if row[0] > MOST_SAMPLES:
            name = bytes(row[1]).decode("utf-8", "surrogatepass")
            raise DataError(
                f"{self.name}: found {row[0]:,} conversations about {name!r:.80}; expected at "
                f"most {MOST_SAMPLES:,} about one question; give rows an example_id"
            )
        return int(row[0])


def _key_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
