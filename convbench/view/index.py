"""The index of the viewer: built once at start, asked on every page.

All that lists, filters and figures need stands in one DuckDB table in memory, parsed once. The
records themselves stay in their files and are read at their place when somebody opens one.
"""
# ruff: noqa: S608 - the SQL is made of names of our own; what users give goes in as parameters

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convbench.errors import QueryError, RunError
from convbench.schema import Conversation, Example
from convbench.store import Run, guard, tables
from convbench.store.limits import bounded, interruptible
from convbench.store.places import Places, placed, size_of
from convbench.store.shape import an_object, checked

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LONGEST_S = 10.0
"""Seconds after which a question to the index is given up."""
MORE = "ask a narrower question, or use convbench query"
ORDERS = 16
"""Answers of `order` that are kept."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies: place of its run in the index, file, first byte, length in bytes."""

    run_no: int
    file: Path
    start: int
    length: int


@dataclass
class Index:
    """Runs with everything that lists ask for, in memory. Safe to use from several threads."""

    runs: list[Run]
    connection: DuckDBPyConnection
    judges: list[str]
    """Judges by name; the column `reward_K` holds the rewards of the K-th."""
    places: dict[str, Place]
    """Where the newest record of a conversation lies, by conversation_id."""
    _files: dict[Path, Places] = field(default_factory=dict)
    _orders: dict[Any, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return rows as mappings. Raises QueryError for wrong SQL and after LONGEST_S."""
        with self._asking():
            cursor = self.connection.execute(sql, list(values))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def order(self, sql: str, values: Sequence[Any]) -> Any:
        """Return the rows' numbers `n` that a query finds, in its order, as an Arrow array.

        The newest few are kept, so that the next page of a search costs nothing.
        """
        key = (sql, tuple(map(str, values)))
        found = self._orders.get(key)
        if found is None:
            with self._asking():
                table: Any = self.connection.sql(sql, params=list(values)).to_arrow_table()
            found = table.column(0).combine_chunks()
            while len(self._orders) >= ORDERS:
                self._orders.pop(next(iter(self._orders)), None)
            self._orders[key] = found
        return found

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Hold the connection, for LONGEST_S at most; SQL that fails is a QueryError."""
        import duckdb

        with self._lock:
            try:
                with bounded(self.connection, LONGEST_S, MORE):
                    yield
            except duckdb.Error as error:
                raise QueryError(guard.first(error)) from None

    def one(self, sql: str, values: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the only row."""
        return self.ask(sql, values)[0]

    def guard(self, sql: str) -> Any:
        """Return DuckDB's tree of a reading SELECT; anything else is a QueryError."""
        with self._lock:
            guard.only(self.connection, sql)
            return guard.serialized(self.connection, sql)

    def conversation(self, conversation_id: str) -> tuple[Run, Conversation, Example]:
        """Read one record from its file. Raises RunError where there is none of this id."""
        place = self.place(conversation_id)
        run = self.runs[place.run_no]
        line = self._read(place)
        found = checked(f"{place.file}: byte {place.start}", line, Conversation)
        example = run.examples.get(found.example_id)
        if example is None:
            raise RunError(f"{run.path}: found no example {found.example_id!r} in examples.jsonl")
        return run, found, example

    def _read(self, place: Place) -> bytes:
        if place.file not in self._files:
            self._files[place.file] = Places(place.file)
        return self._files[place.file].read(place.start, place.length)

    def place(self, conversation_id: str) -> Place:
        """Return where a conversation lies. Raises RunError where there is none of this id."""
        place = self.places.get(conversation_id)
        if place is None:
            raise RunError(f"{conversation_id}: found no such conversation in these runs")
        return place

    @cached_property
    def total(self) -> int:
        """Conversations in all."""
        return int(self.one("SELECT count(*) AS n FROM conversations")["n"])

    @cached_property
    def columns(self) -> list[str]:
        """Columns that a condition may name, as in `query`; a few of our own are left out."""
        rows = self.ask("SELECT column_name AS name FROM (DESCRIBE conversations)")
        ours = ("n", "q", "text", "run_no")
        mine = {f"{kind}_{k}" for k in range(len(self.judges)) for kind in ("reward", "failed")}
        return [row["name"] for row in rows if row["name"] not in mine.union(ours)]

    @cached_property
    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Sizes of the files when they were read."""
        return sizes(self.runs)

    @property
    def stale(self) -> bool:
        """Whether a run has grown since the index was built."""
        return sizes(self.runs) != self.stamp


def sizes(runs: Sequence[Run]) -> tuple[tuple[int, int], ...]:
    """Return the sizes in bytes of each run's conversations and verdicts."""
    names = ("conversations.jsonl", "verdicts.jsonl")
    found = [[sum(map(size_of, run.files(name))) for name in names] for run in runs]
    return tuple((talks, verdicts) for talks, verdicts in found)


@interruptible()
def build_index(runs: Sequence[Run], say: Say = lambda text: None) -> Index:
    """Read these runs and return their index; `say` gets a line for each step.

    A run named twice counts once. Raises RunError for a damaged file.
    """
    unique = list({run.path.resolve(): run for run in runs}.values())
    say(f"reading {len(unique)} run{'s' if len(unique) > 1 else ''} …")
    stamp = sizes(unique)
    connection = tables.connect(unique)
    names = connection.execute("SELECT DISTINCT judge FROM raw.verdicts ORDER BY 1").fetchall()
    judges = [str(name[0]) for name in names]
    say("grading and indexing …")
    for statement in _statements(judges):
        connection.execute(statement)
    index = Index(unique, connection, judges, _places(unique))
    index.stamp = stamp
    say(f"{index.total:,} conversations, {len(judges)} judge{'' if len(judges) == 1 else 's'}")
    return index


def _statements(judges: Sequence[str]) -> Iterator[str]:
    """Put the parsed conversations in the place of the view that parses them each time."""
    columns = "".join(f", v.reward_{k}, v.failed_{k}" for k in range(len(judges)))
    yield f"""
    CREATE TABLE indexed AS
    SELECT row_number() OVER (ORDER BY k.run_no, x.place, k.sample, k.conversation_id) - 1 AS n,
      c.*, k.run_no, x.question, dense_rank() OVER (ORDER BY c.task, c.example_id, x.question) AS q,
      lower(concat_ws(chr(10), c.example_id, x.question, k.said)) AS text{columns}
    FROM conversations c
      JOIN (SELECT run_no, run, sample, conversation_id, example_id, array_to_string(
              [said(t.content) FOR t IN turns IF t.finish_reason <> 'scripted'], chr(10)) AS said
            FROM raw.conversations JOIN raw.runs USING (run_no)) k
        ON k.run = c.run AND k.conversation_id = c.conversation_id
      LEFT JOIN (SELECT run_no, example_id, question, rowid AS place FROM raw.examples) x
        ON x.run_no = k.run_no AND x.example_id = c.example_id
      LEFT JOIN ({_pivot(judges)}) v
        ON v.run_no = k.run_no AND v.conversation_id = c.conversation_id
    ORDER BY n
    """
    yield "DROP VIEW conversations"
    yield "ALTER TABLE indexed RENAME TO conversations"


def _pivot(judges: Sequence[str]) -> str:
    """One row a conversation, with the reward of every judge and whether it failed."""
    columns = ""
    for k, judge in enumerate(judges):
        name = "'" + judge.replace("'", "''") + "'"
        columns += f", max(reward) FILTER (WHERE judge = {name}) AS reward_{k}"
        columns += f", bool_or(failure IS NOT NULL) FILTER (WHERE judge = {name}) AS failed_{k}"
    return f"SELECT run_no, conversation_id{columns} FROM raw.verdicts GROUP BY ALL"


def _places(runs: Sequence[Run]) -> dict[str, Place]:
    """Return where the newest record of each key lies; the first run that has an id counts."""
    found: dict[str, Place] = {}
    for number, run in enumerate(runs):
        newest = {
            key: (name, Place(number, file, start, length))
            for file in run.files("conversations.jsonl")
            for key, name, start, length in _records(file)
        }
        for name, place in newest.values():
            found.setdefault(name, place)
    return found


def _records(path: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield (key, conversation_id, first byte, length) of every whole record."""
    for number, start, line in placed(path):
        record = an_object(f"{path}:{number}", line, ("key", "conversation_id"))
        yield record["key"], record["conversation_id"], start, len(line)
