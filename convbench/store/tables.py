"""Load the records of runs into DuckDB and define the views of `query` over them.

First the raw records are read, only the tables and columns that are needed, those of large runs
into temporary files. Then the database is cut off from files and network for good, and the views
are created. What must be parsed from text (answer, correct, thinking) is an SQL function that runs
only if a query uses it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import BaseModel

from convbench.errors import RunError
from convbench.schema import Conversation, Example, Verdict
from convbench.schema.base import LARGEST_SCORE
from convbench.schema.conversation import TurnCredit
from convbench.schema.gold import GoldLabel
from convbench.schema.judge import Comparison
from convbench.store import columns, views
from convbench.store.byte_offsets import end_of_lines, size_of
from convbench.store.grades import register_functions
from convbench.store.jsonl import numbered_lines
from convbench.store.limits import (
    ONCE,
    MemoryLimit,
    allow_spilling,
    as_keyboard_interrupt,
    seal_memory,
)
from convbench.store.run import Run
from convbench.store.shape import parse_object, parse_record
from convbench.util.regular import open_to_read

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

EVERYTHING = views.VIEW_NAMES
RAW: dict[str, tuple[Mapping[str, str], str]] = {
    "conversations": (columns.CONVERSATIONS, "run_no, key"),
    "verdicts": (columns.VERDICTS, "run_no, conversation_id, judge"),
    "comparisons": (columns.COMPARISONS, 'run_no, "first", "second", fingerprint'),
    "examples": (columns.EXAMPLES, "run_no, example_id"),
    "advantages": (columns.ADVANTAGES, "run_no, conversation_id, turn_index, source"),
    "gold_labels": (columns.GOLD_LABELS, "run_no, conversation_id, rater"),
}
"""Columns of each file, and the key of its records: the last record of a key counts."""

FILE_PATHS = {"gold_labels": "gold/labels.jsonl"}
"""Path within the run of a file that is not named like its table."""
MODELS: dict[str, type[BaseModel]] = {
    "conversations": Conversation,
    "verdicts": Verdict,
    "examples": Example,
    "comparisons": Comparison,
    "advantages": TurnCredit,
    "gold_labels": GoldLabel,
}
WRONG = {
    "conversations": "key IS NULL OR conversation_id IS NULL OR example_id IS NULL OR sample < 0 "
    "OR attempt < 0 OR NOT coalesce(isfinite(temperature) AND temperature >= 0, true) OR "
    "len([1 FOR t IN turns IF t.speaker IS NULL OR t.step IS NULL OR t.content IS NULL]) > 0",
    "verdicts": "conversation_id IS NULL OR judge IS NULL OR fingerprint IS NULL OR attempts < 0 "
    f"OR NOT coalesce(abs(reward) <= {LARGEST_SCORE}, true) OR cost_usd < 0",
    "comparisons": '"first" IS NULL OR "second" IS NULL OR judge IS NULL OR attempts < 0 '
    "OR NOT coalesce(preferred BETWEEN 0 AND 1, true) OR cost_usd < 0",
    "examples": "example_id IS NULL OR task IS NULL OR split IS NULL OR group_id IS NULL OR "
    "question IS NULL OR len([1 FOR c IN choices IF c.label IS NULL OR c.text IS NULL]) > 0",
    "advantages": "conversation_id IS NULL OR source IS NULL OR turn_index IS NULL OR "
    f"turn_index < 0 OR NOT coalesce(abs(advantage) <= {LARGEST_SCORE}, false)",
    "gold_labels": "conversation_id IS NULL OR rater IS NULL OR rater = '' OR "
    f"len([1 FOR s IN map_values(scores) IF NOT coalesce(abs(s) <= {LARGEST_SCORE}, false)]) > 0",
}
"""Condition for invalid records that DuckDB reads without an error."""

CLOSED = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)
LONGEST = (1, 16, 256)
"""Largest record in MiB: limits that are tried in turn, since a large one costs memory."""


@as_keyboard_interrupt()
def connect_runs(
    runs: Sequence[Run],
    view_names: Collection[str] = EVERYTHING,
    *,
    text: bool = True,
    limit: MemoryLimit = ONCE,
    raw_statements: Mapping[str, Sequence[str]] = MappingProxyType({}),
    readable: Sequence[Path] = (),
    closed: bool = True,
) -> DuckDBPyConnection:
    """Return a connection with the views over these runs.

    All views exist, but only those of `view_names` hold rows; without `text` conversations have no
    turns. The schema `raw` holds the records, with `run_no` (index in `runs`). `raw_statements`
    replace the files of a raw table by SQL; the files which that reads, `readable`, stay open to
    queries. Unless `closed` is true the database is not cut off and must not run SQL of a user.

    Raises RunError for a damaged file.
    """
    import duckdb

    connection = duckdb.connect()
    needed = {raw for view in view_names for raw in views.RAW_TABLES[view]}
    sources = (source for run in runs for raw in needed for source in _source_files(run, raw))
    spilling = allow_spilling(connection, sum(map(size_of, sources)), limit)
    try:
        connection.execute("CREATE SCHEMA raw")
        _load_runs(connection, runs)
        for name in RAW:
            if name not in raw_statements:
                _load_records(connection, name, runs if name in needed else (), text)
            for statement in raw_statements.get(name, ()):
                connection.execute(statement)
            if name == "conversations" and _has_duplicates(
                connection, name, "run_no, conversation_id"
            ):
                _refuse_duplicates(connection, name, "conversation_id", runs)
    except RunError:
        connection.close()
        raise
    if not spilling:
        seal_memory(connection)
    judges = (spec for run in runs for spec in run.judge_specs().values())
    register_functions(connection, runs)
    if readable:
        allowed = ", ".join(sql_literal(path) for path in readable)
        connection.execute(f"SET allowed_paths = [{allowed}]")
    for statement in CLOSED if closed else ():
        connection.execute(statement)
    for statement in views.view_statements(views.metric_columns(judges)):
        connection.execute(statement)
    return connection


def _load_runs(connection: DuckDBPyConnection, runs: Sequence[Run]) -> None:
    declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.RUNS.items())
    connection.execute(f"CREATE TABLE raw.runs ({declared})")
    for number, run in enumerate(runs):
        m = run.manifest
        policy = m.protocol.policy
        values = (
            number,
            m.id,
            m.kind,
            m.created,
            m.version,
            m.task.name,
            m.protocol.name,
            m.mode,
            m.cast[policy].model if policy in m.cast else None,
            policy,
            m.parent,
            m.checkpoint,
            str(run.path),
        )
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO raw.runs VALUES ({marks})", values)  # noqa: S608
    connection.execute(
        "CREATE TABLE raw.judges (run_no INTEGER, fingerprint VARCHAR, kind VARCHAR, fence VARCHAR)"
    )
    for number, run in enumerate(runs):
        for mark, spec in run.judge_specs().items():
            connection.execute(
                "INSERT INTO raw.judges VALUES (?, ?, ?, ?)", [number, mark, spec.kind, spec.fence]
            )


def _load_records(
    connection: DuckDBPyConnection, name: str, runs: Sequence[Run], text: bool
) -> None:
    """Create raw.NAME from the files of the runs, with only the newest record of a key."""
    _, key = RAW[name]
    _create_table(connection, name)
    for number, run in enumerate(runs):
        for path in _source_files(run, name):
            if path.exists() and not path.is_file():
                raise RunError(f"{path}: found no file; expected JSON lines")
            if size_of(path):
                _insert_file(connection, name, number, path, path, text)
    if name == "examples" and _has_duplicates(connection, name, "run_no, example_id"):
        _refuse_duplicates(connection, name, "example_id", runs)
    if _has_duplicates(connection, name, key):
        connection.execute(
            f"DELETE FROM raw.{name} WHERE rowid NOT IN "  # noqa: S608 - names of our own
            f"(SELECT max(rowid) FROM raw.{name} GROUP BY {key})"
        )


def read_piece(connection: DuckDBPyConnection, name: str, path: Path, piece: Path) -> None:
    """Create or replace the table raw.NAME with every record of a run's file, or of a piece of it;
    `run_no` is 0.

    `path` is the file that the piece belongs to, for errors. The schema `raw` must exist. Raises
    RunError for a damaged file.
    """
    _create_table(connection, name)
    _insert_file(connection, name, 0, path, piece, text=True)


def _create_table(connection: DuckDBPyConnection, name: str) -> None:
    declared = ", ".join(f'"{column}" {kind}' for column, kind in RAW[name][0].items())
    connection.execute(f"CREATE OR REPLACE TABLE raw.{name} (run_no INTEGER, {declared})")


def _source_files(run: Run, name: str) -> list[Path]:
    """Return the files of a run from which a raw table is read."""
    if name in ("examples", *FILE_PATHS):
        return [run.path / FILE_PATHS.get(name, f"{name}.jsonl")]
    return [run.path / f"{name}.jsonl"]


def _has_duplicates(connection: DuckDBPyConnection, name: str, key: str) -> bool:
    """Return True if hashes of these columns are equal for any two records. Takes a tenth of the
    memory that comparing the columns themselves would."""
    counts = f"SELECT count(*), count(DISTINCT hash({key})) FROM raw.{name}"  # noqa: S608
    every, different = connection.execute(counts).fetchall()[0]
    return bool(every != different)


def _refuse_duplicates(
    connection: DuckDBPyConnection, name: str, column: str, runs: Sequence[Run]
) -> None:
    """Raise RunError if two records of a run have the same value in a column."""
    duplicate = connection.execute(
        f"SELECT run_no, {column} FROM raw.{name} GROUP BY ALL HAVING count(*) > 1 LIMIT 1"  # noqa: S608
    ).fetchone()
    if duplicate is not None:
        path = runs[duplicate[0]].path / f"{name}.jsonl"
        raise RunError(
            f"{path}: {column}: found {duplicate[1]!r:.80} for two records; expected one"
        )


def _insert_file(
    connection: DuckDBPyConnection,
    name: str,
    number: int,
    path: Path,
    piece: Path,
    text: bool,
) -> None:
    """Append a file, or a piece of it, to raw.NAME. A torn last line is left out. Raises
    RunError for other damage."""
    import duckdb

    read = {c: kind for c, kind in RAW[name][0].items() if text or c != "turns"}
    listed = ", ".join(f"'{column}': '{kind}'" for column, kind in read.items())
    insert = (
        f"INSERT INTO raw.{name} (run_no, {', '.join(map(_quote_name, read))}) "  # noqa: S608
        f"SELECT {number}, * FROM read_json(%s, format='newline_delimited', "
        f"maximum_object_size=%d, columns={{{listed}}})"
    )
    message = ""
    with tempfile.TemporaryDirectory() as folder:
        for longest in LONGEST:  # a further try also helps if the file grew while it was read
            connection.execute("BEGIN")
            try:
                if (readable := _readable_file(piece, Path(folder))) is not None:
                    connection.execute(insert % (sql_literal(readable), longest << 20))
                connection.execute("COMMIT")
                break
            except (duckdb.Error, FileNotFoundError) as error:
                connection.execute("ROLLBACK")
                _name_fault(path, name)
                message = str(error).splitlines()[0]
                if isinstance(error, duckdb.OutOfMemoryException):  # a larger limit cannot help
                    raise RunError(f"{path}: cannot be read: {message:.300}") from None
        else:
            raise RunError(f"{path}: cannot be read: {message:.300}")
    wrong = f"SELECT count(*) FROM raw.{name} WHERE run_no = {number} AND ({WRONG[name]})"  # noqa: S608
    if connection.execute(wrong).fetchall() != [(0,)]:
        _name_fault(path, name)
        raise RunError(f"{path}: found a record of the wrong shape; the file is damaged")


def _name_fault(path: Path, name: str) -> None:
    """Raise RunError for the first invalid record of a file, if there is any."""
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        parse_object(where, line)
        parse_record(where, line, MODELS[name])


def _readable_file(path: Path, folder: Path) -> Path | None:
    """Return a path that DuckDB can read instead of a file: the file itself, a link in `folder` if
    its name has wildcards, or a copy of its complete lines if the last one is torn; None if it has
    no complete line."""
    size = end_of_lines(path)
    if not size:
        return None
    cut = size != path.stat().st_size
    if not cut and not set("*?[]{}") & set(str(path)):
        return path
    other = folder / path.name
    other.unlink(missing_ok=True)
    if cut:
        _copy_start(path, other, size)
    else:
        other.symlink_to(path.resolve())
    return other


def _copy_start(path: Path, other: Path, length: int) -> None:
    """Copy the first `length` bytes of a file."""
    with open_to_read(path) as source, other.open("wb") as target:
        while part := source.read(min(length - target.tell(), 1 << 20)):
            target.write(part)


def sql_literal(path: Path) -> str:
    """Return a path as an SQL string literal in single quotes, with quotes in it doubled."""
    return "'" + str(path).replace("'", "''") + "'"


def _quote_name(name: str) -> str:
    return f'"{name}"'
