"""The index of the viewer: built at start, grown with its runs, asked on every page.

All that lists, filters and figures need stands in one DuckDB table, parsed once: in memory, of
large runs in a file that is kept (`view/kept.py`). The records themselves stay in their files and
are read at their place when somebody opens one.
"""
# ruff: noqa: S608 - the SQL is made of names of our own; what users give goes in as parameters

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from convbench.errors import QueryError, RunError
from convbench.schema import Conversation, Example
from convbench.store import Run, guard, tables
from convbench.store.jsonl import placed
from convbench.store.limits import OFTEN, NoRoom, Room, bounded, interruptible
from convbench.store.places import Places
from convbench.store.shape import checked
from convbench.store.tail import Mark, Signs, fixed, marks, signs

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_JUDGES = 64
"""Judges whose rewards are columns of the index."""
LONGEST_S = 10.0
"""Seconds after which a question to the index is given up."""
MORE = "ask a narrower question, or use convbench query"
LOST = "the index could not be opened again and is made anew; ask once more in a moment"
AT_ONCE = 40_000
"""Conversations whose texts are indexed at once."""
ORDERS = 16
"""Answers of `order` that are kept, and of `having`."""
ORDERED = 16 << 20
"""Bytes of answers of `order` that are kept."""
SPOKEN = """CASE WHEN t.rounds IS NULL THEN [said(t.content)] ELSE list_concat(
  t.rounds->>'$[*].content', t.rounds->>'$[*].calls[*].name', t.rounds->>'$[*].calls[*].arguments',
  t.rounds->>'$[*].results[*].content', [said(t.content)]) END"""
"""The texts of a turn, in SQL: what it called of tools and what came of it, then what was said."""
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass
class Index:
    """Runs with everything that lists ask for. Safe to use from several threads."""

    runs: list[Run]
    connection: DuckDBPyConnection
    judges: list[str]
    """Judges by name; the column `reward_K` holds the rewards of the K-th."""
    files: list[Places]
    """Files of conversations; `raw.places` says where in which of them each lies."""
    marks: list[dict[Path, Mark]]
    """How far each run's files were read."""
    seen: list[Signs]
    """How the files looked then."""
    kept: Path | None = None
    """The database it lies in; None for memory."""
    room: Room = OFTEN
    """What memory it has; of a kept one it may be less until a question needs more."""
    lost: bool = False
    """Whether its file could not be opened again."""
    _orders: dict[Any, Any] = field(default_factory=dict)
    _found: dict[tuple[str, ...], str] = field(default_factory=dict)
    _stale: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return rows as mappings. Raises QueryError for wrong SQL and after LONGEST_S."""

        def asked() -> list[dict[str, Any]]:
            cursor = self.connection.execute(sql, list(values))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        return self._asked(asked)

    def order(self, sql: str, values: Sequence[Any]) -> Any:
        """Return the rows' numbers `n` that a query finds, in its order, as an Arrow array.

        The newest few are kept, so that the next page of a search costs nothing.
        """
        key = (sql, tuple(map(str, values)))
        found = self._orders.get(key)
        if found is None:
            table = self._asked(
                lambda: self.connection.sql(sql, params=list(values)).to_arrow_table()
            )
            found = table.column(0).combine_chunks()
            self._orders[key] = found
            while len(self._orders) > ORDERS or self._held > ORDERED:
                self._orders.pop(next(iter(self._orders), None), None)
        return found

    @property
    def _held(self) -> int:
        return sum(one.nbytes for one in tuple(self._orders.values()))

    def known(self, terms: Sequence[str]) -> str | None:
        """Return the table that `having` keeps of these terms, if it does."""
        return self._found.get(tuple(terms))

    def having(self, terms: Sequence[str], condition: str, values: Sequence[Any]) -> str:
        """Return a table of the numbers `n` of the rows whose texts hold all terms, which
        `condition` says in SQL. Every text is read for it, so the newest few are kept: a search
        is asked for by the list and by each count beside a filter."""
        key = tuple(terms)

        def found() -> str:
            if key not in self._found:
                name = f"found_{next(self._numbers)}"
                sql = f"CREATE TEMP TABLE {name} AS SELECT n FROM conversations WHERE {condition}"
                self.connection.execute(sql, list(values))
                if len(self._found) >= ORDERS:
                    self._drop(self._found.pop(next(iter(self._found))))
                self._found[key] = name
            return self._found[key]

        return self._asked(found)

    def _drop(self, *tables: str) -> None:
        for name in tables:
            self.connection.execute(f"DROP TABLE {name}")

    def _asked(self, work: Callable[[], T]) -> T:
        """Hold the connection while `work` asks it, for LONGEST_S at most; SQL that fails is a
        QueryError. What needs more memory than a kept index has is asked once more, with more."""
        with self._lock:
            with suppress(NoRoom):
                return self._bounded(work)
            self._widen()  # not while the error is handled: it holds on to the connection
            return self._bounded(work)

    def _bounded(self, work: Callable[[], T]) -> T:
        import duckdb

        if self.lost:
            raise QueryError(LOST)
        try:
            with bounded(self.connection, LONGEST_S, MORE):
                return work()
        except NoRoom:
            if self._narrow:
                raise
            raise QueryError(f"needs more memory than it may have; {MORE}") from None
        except duckdb.Error as error:
            raise QueryError(guard.first(error)) from None

    def widen(self) -> None:
        """Have as much memory as an index that is not kept: for changes."""
        with self._lock:
            if self._narrow:
                self._widen()

    @property
    def _narrow(self) -> bool:
        return self.room.held_mb < OFTEN.held_mb

    def _widen(self) -> None:
        """Open the file anew, for a connection's limits are locked; what searches found goes
        along."""
        import duckdb

        assert self.kept is not None
        names = [*self._found.values(), *self._stale]
        self.lost = True
        try:
            found = [self.connection.table(name).to_arrow_table() for name in names]
            self.connection.close()
            self.connection = tables.reopen(self.kept, self.runs, room=OFTEN)
            for name, rows in zip(names, found, strict=True):
                self.connection.register("rows_found", rows)
                self.connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM rows_found")
                self.connection.unregister("rows_found")
        except (duckdb.Error, RunError):
            raise QueryError(LOST) from None
        self.room, self.lost = OFTEN, False

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
        run, file = self.runs[place["run_no"]], self.files[place["file"]]
        where = f"{file.path}: byte {place['start']}"
        found = checked(where, file.read(place["start"], place["length"]), Conversation)
        if found.conversation_id != conversation_id:
            raise RunError(f"{where}: the file was written anew since it was read")
        example = run.examples.get(found.example_id)
        if example is None:
            raise RunError(f"{run.path}: found no example {found.example_id!r} in examples.jsonl")
        return run, found, example

    def place(self, conversation_id: str) -> dict[str, int]:
        """Return the number of the run, of the file, and where in it a conversation lies: `run_no`,
        `file`, `start`, `length`; the first run that has an id counts. Raises RunError where there
        is none of this id."""
        found = self.ask(
            "SELECT * EXCLUDE (conversation_id) FROM raw.places WHERE conversation_id = ? "
            "ORDER BY run_no LIMIT 1",
            [conversation_id],
        )
        if not found:
            raise RunError(f"{conversation_id}: found no such conversation in these runs")
        return found[0]

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

    @property
    def grown(self) -> bool:
        """Whether a run has other files than when they were read."""
        return [signs(run) for run in self.runs] != self.seen

    @contextmanager
    def changing(self) -> Iterator[DuckDBPyConnection]:
        """Hold the connection while rows are changed, all of them or none; what was kept of
        earlier answers is forgotten."""
        with self._lock:
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")
            self._orders.clear()
            self._drop(*self._stale)  # not the newest: another thread may be about to ask them
            self._stale = list(self._found.values())
            self._found.clear()
            self.__dict__.pop("total", None)

    def keep(self) -> None:
        """Write down beside the tables, where they lie in a file, what they were made of: the next
        start takes them from there."""
        if self.kept is None:
            return
        said = {
            "fixed": [fixed(run) for run in self.runs], "judges": self.judges,
            "files": [self._within(file.path) for file in self.files], "seen": self.seen,
            "marks": [{str(path.relative_to(run.path)): (mark.size, mark.look)
                       for path, mark in of.items()}
                      for run, of in zip(self.runs, self.marks, strict=True)],
        }  # fmt: skip
        self.connection.execute("CREATE OR REPLACE TABLE raw.kept AS SELECT ?::VARCHAR AS said",
                                [orjson.dumps(said).decode()])  # fmt: skip

    def _within(self, path: Path) -> tuple[int, str]:
        """Return the number of the run that a file lies in, and its name there: the next start may
        write the run's folder otherwise, from another place say."""
        return next(
            (number, str(path.relative_to(run.path)))
            for number, run in enumerate(self.runs) if path.is_relative_to(run.path)
        )  # fmt: skip

    def close(self) -> None:
        """Free the memory, and the file for others."""
        with self._lock:
            self.connection.close()


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Return runs, each once."""
    return list({run.path.resolve(): run for run in runs}.values())


@interruptible()
def build_index(
    runs: Sequence[Run], say: Say = lambda text: None, file: Path | None = None
) -> Index:
    """Read these runs and return their index; `say` gets a line for each step.

    A run named twice counts once. The index lies in memory, or in `file`, which must not be there
    yet. Raises RunError for a damaged file.
    """
    unique = distinct(runs)
    say(f"reading {len(unique)} run{'s' if len(unique) > 1 else ''} …")
    seen = [signs(run) for run in unique]
    before = [marks(run) for run in unique]
    connection = tables.connect(unique, room=OFTEN, file=file)
    names = connection.execute("SELECT DISTINCT judge FROM raw.verdicts ORDER BY 1").fetchall()
    judges = [str(name[0]) for name in names[:MOST_JUDGES]]
    if len(names) > MOST_JUDGES:
        say(f"{len(names)} judges; rewards of the first {MOST_JUDGES} are shown, by name")
    say("grading and indexing …")
    files = _place(connection)
    counted = "SELECT coalesce(max(rowid), -1) + 1 FROM raw.conversations"
    for statement in _statements(judges, int(connection.execute(counted).fetchall()[0][0])):
        connection.execute(statement)
    for run in unique:
        len(run.examples)  # where they lie is read now, not when the first conversation is opened
    index = Index(unique, connection, judges, files, before, seen, file)
    if file is not None:
        index.keep()
        connection.execute("CHECKPOINT")
    say(f"{index.total:,} conversations, {len(names)} judge{'' if len(names) == 1 else 's'}")
    return index


def _place(connection: DuckDBPyConnection) -> list[Places]:
    """Note in `raw.places` where every conversation lies; return the files that it numbers."""
    import pyarrow

    connection.execute(
        "CREATE TABLE raw.places (run_no INTEGER, conversation_id VARCHAR, file INTEGER, "
        "start BIGINT, length BIGINT)"
    )
    read = connection.execute(
        "SELECT path, first FROM raw.files WHERE name = 'conversations' ORDER BY first"
    ).fetchall()
    for number, (path, first) in enumerate(read):
        starts, lengths = array("q"), array("q")
        for _, start, line in placed(Path(path)):
            starts.append(start)
            lengths.append(len(line))
        spans = pyarrow.table({"k": range(first, first + len(starts)), "start": starts,
                               "length": lengths})  # fmt: skip
        connection.register("spans", spans)
        most = read[number + 1][1] if number + 1 < len(read) else first + len(starts)
        connection.execute(
            f"INSERT INTO raw.places SELECT run_no, conversation_id, {number}, start, length "
            f"FROM raw.conversations c JOIN spans s ON c.rowid = s.k WHERE s.k < {most}"
        )
        connection.unregister("spans")
    return [Places(Path(path)) for path, _ in read]


def _statements(judges: Sequence[str], rows: int) -> Iterator[str]:
    """Put the parsed conversations in the place of the view that parses them each time.

    What is numbered, graded or joined has no texts, for DuckDB holds much of it in memory; texts
    are added at the end, some of the `rows` at a time, in the order of the file.
    """
    yield """
    CREATE TEMP TABLE asked AS
    SELECT run_no, example_id, question, rowid AS place,
      dense_rank() OVER (ORDER BY question) AS worded
    FROM raw.examples
    """
    yield """
    CREATE TEMP TABLE numbered AS
    SELECT run_no, k.conversation_id, k.rowid AS spot,
      row_number() OVER (ORDER BY run_no, x.place, k.sample, k.conversation_id) - 1 AS n,
      dense_rank() OVER (ORDER BY r.task, k.example_id, x.worded) AS q
    FROM raw.conversations k JOIN raw.runs r USING (run_no)
      LEFT JOIN asked x USING (run_no, example_id)
    """
    yield "CREATE TEMP TABLE graded AS SELECT * FROM conversations"
    yield f"CREATE TEMP TABLE given AS {rewarded(judges)}"
    given = "".join(f", reward_{k}, failed_{k}" for k in range(len(judges)))
    yield f"""
    CREATE TEMP TABLE joined AS
    SELECT o.n, c.*, o.run_no, o.q, o.spot{given}
    FROM graded c JOIN raw.runs r USING (run)
      JOIN numbered o ON o.run_no = r.run_no AND o.conversation_id = c.conversation_id
      LEFT JOIN given v ON v.run_no = r.run_no AND v.conversation_id = c.conversation_id
    """
    for name in ("given", "graded", "numbered"):
        yield f"DROP TABLE {name}"
    for start in range(0, max(rows, 1), AT_ONCE):
        some = f"BETWEEN {start} AND {start + AT_ONCE - 1}"
        yield f"""
        {"INSERT INTO indexed" if start else "CREATE TABLE indexed AS"}
        SELECT c.* EXCLUDE (q, spot{given}), x.question, c.q,
          lower(concat_ws(chr(10), c.example_id, x.question, array_to_string(flatten(
            [{SPOKEN} FOR t IN k.turns IF t.finish_reason <> 'scripted']), chr(10)))) AS text
          {given}
        FROM raw.conversations k JOIN joined c ON c.spot = k.rowid
          LEFT JOIN asked x ON x.run_no = c.run_no AND x.example_id = c.example_id
        WHERE k.rowid {some} AND c.spot {some}
        """
    yield "DROP TABLE joined"
    yield "DROP TABLE asked"
    yield "DROP VIEW conversations"
    yield "ALTER TABLE indexed RENAME TO conversations"


def rewarded(judges: Sequence[str]) -> str:
    """One row a conversation, with the reward of every judge and whether it failed."""
    columns = ""
    for k, judge in enumerate(judges):
        name = "'" + judge.replace("'", "''") + "'"
        columns += f", max(reward) FILTER (WHERE judge = {name}) AS reward_{k}"
        columns += f", bool_or(failure IS NOT NULL) FILTER (WHERE judge = {name}) AS failed_{k}"
    return f"SELECT run_no, conversation_id{columns} FROM raw.verdicts GROUP BY ALL"
