"""The index of the viewer: what all lists, filters and figures need, in one table in memory.

Texts, verdicts and the records themselves stay in the files of `view/rows.py`, which DuckDB reads;
an opened conversation is read at its place in the run. An index is never changed: of a run that
grew another one is made.
"""
# ruff: noqa: S608 - the SQL is made of names of our own; what users give goes in as parameters

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from convbench.errors import QueryError, RunError
from convbench.schema import Conversation, Example
from convbench.store import Run, guard, tables
from convbench.store.byte_offsets import read_range
from convbench.store.limits import OFTEN, OutOfMemory, as_keyboard_interrupt, limit_query
from convbench.store.shape import parse_record
from convbench.viewer.rows import PieceRows, RowFiles

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_JUDGES = 64
"""Judges whose rewards are columns of the index."""
LONGEST_S = 10.0
"""Seconds after which a question to the index is given up."""
MORE = "narrow the query, or use convbench query"
LOST = "the index is being rebuilt; try again in a moment"
ORDERS = 16
"""Answers of `ordered_numbers` that are kept, and of `matching_table`."""
ORDERED = 16 << 20
"""Bytes of answers of `ordered_numbers` that are kept."""
FILE_BIT = 44
"""The bits of a `position` below this are a place in a file, those above the file's number."""
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass
class ViewIndex:
    """Runs with everything that lists ask for. Safe to use from several threads."""

    runs: list[Run]
    connection: DuckDBPyConnection
    judges: list[str]
    """Judges by name; the column `reward_K` holds the rewards of the K-th."""
    files: list[Path]
    """Files of conversations; the upper bits of a `position` are the number of one."""
    readable: list[Path]
    """What DuckDB reads for it."""
    rows: RowFiles
    """Who keeps that."""
    lost: bool = False
    """Whether some of it is gone: a sidecar that was not used for long."""
    _orders: dict[Any, Any] = field(default_factory=dict)
    _match_tables: dict[tuple[str, ...], str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def query_rows(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as mappings by column name; an empty list without rows.

        Raise QueryError for wrong SQL, after 10 seconds, for too much memory, or while the index is
        rebuilt.
        """

        def fetch_rows() -> list[dict[str, Any]]:
            cursor = self.connection.execute(sql, list(values))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        return self._run_limited(fetch_rows)

    def query_frame(self, sql: str) -> Any:
        """Return the rows of a query as a pandas frame. Raise QueryError as `query_rows` does."""
        return self._run_limited(lambda: self.connection.execute(sql).df())

    def ordered_numbers(self, sql: str, values: Sequence[Any]) -> Any:
        """Return the first column of a query, the rows' numbers `n` in its order, as an Arrow
        array. Raise QueryError as `query_rows` does.

        The newest few are kept, so that the next page of a search costs nothing.
        """
        key = (sql, tuple(map(str, values)))
        numbers = self._orders.get(key)
        if numbers is None:
            table = self._run_limited(
                lambda: self.connection.sql(sql, params=list(values)).to_arrow_table()
            )
            numbers = table.column(0).combine_chunks()
            self._orders[key] = numbers
            while len(self._orders) > ORDERS or self._held_bytes > ORDERED:
                self._orders.pop(next(iter(self._orders), None), None)
        return numbers

    @property
    def _held_bytes(self) -> int:
        return sum(array.nbytes for array in tuple(self._orders.values()))

    def known_matches(self, terms: Sequence[str]) -> str | None:
        """Return the table that `matching_table` keeps of these terms, if it does."""
        return self._match_tables.get(tuple(terms))

    def matching_table(self, terms: Sequence[str], condition: str, values: Sequence[Any]) -> str:
        """Return the name of a table of the numbers `n` of the rows whose texts contain all terms;
        `condition` says that in SQL.

        Every text is read for it, so the newest 16 tables are kept by their terms: a search is
        asked for by the list and by each count beside a filter. Raise QueryError as `query_rows`
        does.
        """
        key = tuple(terms)

        def make_table() -> str:
            if key not in self._match_tables:
                name = f"found_{next(self._numbers)}"
                self.connection.execute(
                    f"CREATE TEMP TABLE {name} AS SELECT n FROM raw.texts "
                    f"JOIN conversations USING (position) WHERE {condition}",
                    list(values),
                )
                if len(self._match_tables) >= ORDERS:
                    oldest = self._match_tables.pop(next(iter(self._match_tables)))
                    self.connection.execute(f"DROP TABLE {oldest}")
                self._match_tables[key] = name
            return self._match_tables[key]

        return self._run_limited(make_table)

    def _run_limited(self, work: Callable[[], T]) -> T:
        """Hold the connection while `work` asks it, for LONGEST_S at most; SQL that fails is a
        QueryError."""
        import duckdb

        with self._lock:
            if self.lost:
                raise QueryError(LOST)
            try:
                with limit_query(self.connection, LONGEST_S, MORE):
                    return work()
            except OutOfMemory:
                raise QueryError(f"needs more memory than is allowed; {MORE}") from None
            except duckdb.Error as error:
                self.lost = not all(path.exists() for path in self.readable)
                raise QueryError(LOST if self.lost else guard.first_line(error)) from None

    def query_row(self, sql: str, values: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the first row of a query as a mapping.

        Raise IndexError if there is none, QueryError as `query_rows` does.
        """
        return self.query_rows(sql, values)[0]

    def guarded_tree(self, sql: str) -> Any:
        """Return DuckDB's syntax tree of a SELECT that only reads, as JSON data.

        Raise QueryError for anything else.
        """
        with self._lock:
            guard.reading_statement(self.connection, sql)
            return guard.syntax_tree(self.connection, sql)

    def read_conversation(self, conversation_id: str) -> tuple[Run, Conversation, Example]:
        """Return (run, conversation, question) of an id, read from the run's file.

        Raise RunError if there is none of this id, the file was replaced since it was indexed, or
        the question is missing.
        """
        location = self.locate_conversation(conversation_id)
        run, file = self.runs[location["run_no"]], self.files[location["file"]]
        where = f"{file}: byte {location['start']}"
        conversation = parse_record(
            where, read_range(file, location["start"], location["length"]), Conversation
        )
        if conversation.conversation_id != conversation_id:
            raise RunError(f"{where}: the file was written anew since it was read")
        example = run.examples.get(conversation.example_id)
        if example is None:
            raise RunError(
                f"{run.path}: found no example {conversation.example_id!r} in examples.jsonl"
            )
        return run, conversation, example

    def locate_conversation(self, conversation_id: str) -> dict[str, int]:
        """Return where a conversation's record lies, as `run_no`, `file` (both are positions in
        lists of the index), `start` and `length` in bytes.

        The first run that has the id counts. Raise RunError if there is none of this id.
        """
        rows = self.query_rows(
            f"SELECT run_no, position >> {FILE_BIT} AS file, length, "
            f"position - ((position >> {FILE_BIT}) << {FILE_BIT}) AS start "
            "FROM conversations WHERE conversation_id = ? ORDER BY run_no LIMIT 1",
            [conversation_id],
        )
        if not rows:
            raise RunError(f"{conversation_id}: found no such conversation in these runs")
        return rows[0]

    @cached_property
    def total(self) -> int:
        """Return the number of conversations in the index."""
        return int(self.query_row("SELECT count(*) AS n FROM conversations")["n"])

    @cached_property
    def columns(self) -> list[str]:
        """Return the names of the columns that a condition may name, as in `query`, without those
        of the viewer's own."""
        rows = self.query_rows("SELECT column_name AS name FROM (DESCRIBE conversations)")
        ours = ("n", "q", "run_no", "position", "length")
        mine = {f"{kind}_{k}" for k in range(len(self.judges)) for kind in ("reward", "failed")}
        return [row["name"] for row in rows if row["name"] not in mine.union(ours)]

    def close(self) -> None:
        """Close the database connection, which frees the memory; the index answers nothing
        afterwards."""
        with self._lock:
            self.connection.close()


def distinct_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the runs in their order, those of one folder (links resolved) once."""
    return list({run.path.resolve(): run for run in runs}.values())


@as_keyboard_interrupt()
def build_index(
    runs: Sequence[Run],
    say: Say = lambda text: None,
    rows: RowFiles | None = None,
    first: int | None = None,
) -> ViewIndex:
    """Return the index of these runs, or of the `first` conversations of each; `say` gets a line
    for each step, `rows` makes what is read of them.

    A run named twice counts once. Raises RunError for a damaged file.
    """
    import duckdb

    unique, rows = distinct_runs(runs), rows or RowFiles()
    say(f"reading {len(unique)} run{'s' if len(unique) > 1 else ''} …")
    say("grading and indexing …")
    parts = rows.collect_rows(unique) if first is None else rows.collect_first(unique, first)
    files = [path for run in unique for path in [run.path / "conversations.jsonl"]]
    judged = [path for run in unique for path in [run.path / "verdicts.jsonl"]]
    names = list(dict.fromkeys(part.name for part in parts))
    readable = [part.rows for part in parts]
    raw_statements = {
        name: _raw_table_sql(name, [part for part in parts if part.name == name], [*files, *judged])
        for name in names
    }
    try:
        connection = tables.connect_runs(
            unique, limit=OFTEN, raw_statements=raw_statements, readable=readable
        )
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise RunError(f"{guard.first_line(error):.300}; remove that file") from None
    judge_rows = connection.execute("SELECT DISTINCT judge FROM raw.verdicts ORDER BY 1").fetchall()
    judges = [str(name[0]) for name in judge_rows[:MOST_JUDGES]]
    if len(judge_rows) > MOST_JUDGES:
        say(f"{len(judge_rows)} judges; rewards of the first {MOST_JUDGES} are shown, by name")
    listed = LISTED if "conversations" in raw_statements else NO_ROWS
    for statement in (*listed, *_index_statements(judges)):
        connection.execute(statement)
    index = ViewIndex(unique, connection, judges, files, readable, rows)
    say(
        f"{index.total:,} conversations, {len(judge_rows)} "
        f"judge{'' if len(judge_rows) == 1 else 's'}"
    )
    return index


def _raw_table_sql(name: str, parts: Sequence[PieceRows], files: Sequence[Path]) -> list[str]:
    """Return what makes raw.NAME of the rows of its parts, the newest record of a key alone."""
    numbers = {path: number for number, path in enumerate(files)}
    paths = ", ".join(tables.sql_literal(part.rows) for part in parts)
    runs = [part.run_no for part in parts]
    bases = [(numbers[part.path] << FILE_BIT) + part.base for part in parts]
    kinds, key = tables.RAW[name]
    columns = ", ".join(f'record."{column}" AS "{column}"' for column in kinds)
    return [
        f"CREATE VIEW raw.every_{name} AS SELECT ({runs}::INTEGER[])[file_index::BIGINT + 1] AS "
        f"run_no, ({bases}::BIGINT[])[file_index::BIGINT + 1] + start AS position, * "
        f"FROM read_parquet([{paths}])",
        f"CREATE VIEW raw.record_{name} AS "
        f"SELECT run_no, position, {columns} FROM raw.every_{name}",
        f"CREATE TABLE raw.older_{name} AS {OLDER.format(name=name, key=key)}",
        f"CREATE VIEW raw.{name} AS FROM raw.record_{name} "
        f"ANTI JOIN raw.older_{name} USING (position)",
    ]


OLDER = """
WITH repeated AS (
  SELECT hash({key}) AS mark FROM raw.record_{name} GROUP BY mark HAVING count(*) > 1
)
SELECT position FROM raw.record_{name} WHERE hash({key}) IN (FROM repeated)
QUALIFY position < max(position) OVER (PARTITION BY {key})
"""
"""The positions of records that another one of the same key came after."""
LISTED = (
    "CREATE VIEW raw.listed AS SELECT * EXCLUDE (start, record) FROM raw.every_conversations "
    "ANTI JOIN raw.older_conversations USING (position)",
    "CREATE VIEW raw.texts AS SELECT position, text FROM raw.every_conversations",
)
NO_ROWS = (
    "CREATE TABLE raw.listed AS SELECT 0::INTEGER AS run_no, 0::BIGINT AS position, "
    "0::BIGINT AS length, '' AS key, 0::BIGINT AS asked_at, '' AS question, '' AS text, * "
    "FROM main.conversations",
    "CREATE VIEW raw.texts AS SELECT position, text FROM raw.listed",
)
"""The same where there are no conversations."""


def _index_statements(judges: Sequence[str]) -> Iterator[str]:
    """Put what all lists need in the place of the view that parses the records each time."""
    yield """
    CREATE TEMP TABLE asked AS
    SELECT run_no, example_id, dense_rank() OVER (ORDER BY question) AS worded FROM raw.examples
    """
    yield """
    CREATE TEMP TABLE numbered AS
    SELECT position,
      row_number() OVER (ORDER BY run_no, asked_at, sample, conversation_id) - 1 AS n,
      dense_rank() OVER (ORDER BY task, example_id, worded) AS q
    FROM raw.listed LEFT JOIN asked USING (run_no, example_id)
    """
    yield f"CREATE TEMP TABLE given AS {rewards_sql(judges)}"
    reward_columns = "".join(f", reward_{k}, failed_{k}" for k in range(len(judges)))
    yield f"""
    CREATE TABLE indexed AS
    SELECT n, l.* EXCLUDE (run_no, position, length, key, asked_at, question, text), l.run_no,
      l.question, q, l.position, l.length{reward_columns}
    FROM raw.listed l JOIN numbered USING (position)
      LEFT JOIN given v ON v.run_no = l.run_no AND v.conversation_id = l.conversation_id
    """
    for name in ("given", "numbered", "asked"):
        yield f"DROP TABLE {name}"
    yield "DROP VIEW conversations"
    yield "ALTER TABLE indexed RENAME TO conversations"


def rewards_sql(judges: Sequence[str]) -> str:
    """Return SQL for the newest verdicts, one row a conversation: run_no, conversation_id, and for
    the K-th judge `reward_K` and `failed_K`.

    Both are NULL without a verdict of that judge.
    """
    columns = ""
    for k, judge in enumerate(judges):
        name = "'" + judge.replace("'", "''") + "'"
        columns += f", max(reward) FILTER (WHERE judge = {name}) AS reward_{k}"
        columns += f", bool_or(failure IS NOT NULL) FILTER (WHERE judge = {name}) AS failed_{k}"
    return f"SELECT run_no, conversation_id{columns} FROM raw.verdicts GROUP BY ALL"
