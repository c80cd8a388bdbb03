"""The records of one or several runs as DuckDB views, closed to the outside.

The raw records are read into memory first, only those and only as wide as is needed; then the
database is cut off from files and network for good, and the views are laid over them. What must
be parsed from text (answer, correct, thinking) is a function, run where a query asks for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convbench.errors import RunError
from convbench.store import columns, grading, views
from convbench.store.jsonl import records
from convbench.store.limits import interruptible, seal_memory
from convbench.store.run import Run

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

EVERYTHING = tuple(views.ALL)
RAW: dict[str, tuple[Mapping[str, str], str]] = {
    "conversations": (columns.CONVERSATIONS, "run_no, key"),
    "verdicts": (columns.VERDICTS, "run_no, conversation_id, judge"),
    "examples": (columns.EXAMPLES, "run_no, example_id"),
}
"""Columns of each file, and what names a record in it: of those alike the last one counts."""

CLOSED = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)
LONGEST = (16, 256)
"""Longest record in MiB: the first limit tried, and the last (it costs memory)."""


@interruptible()
def connect(
    runs: Sequence[Run], wanted: Collection[str] = EVERYTHING, *, text: bool = True
) -> DuckDBPyConnection:
    """Return a connection with the views over these runs.

    All views exist; only those `wanted` hold rows, and without `text` the conversations have no
    turns. The schema `raw` holds the records as they stand, with `run_no` (place in `runs`).
    Raises RunError for a damaged file.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("CREATE SCHEMA raw")
    _load_runs(connection, runs)
    needed = {raw for view in wanted for raw in views.NEEDS[view]}
    for name in RAW:
        _load(connection, name, runs if name in needed else (), text)
    seal_memory(connection)
    grading.register(connection, runs)
    for statement in (*CLOSED, views.SAID, *views.ALL.values()):
        connection.execute(statement)
    return connection


def _load_runs(connection: DuckDBPyConnection, runs: Sequence[Run]) -> None:
    declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.RUNS.items())
    connection.execute(f"CREATE TABLE raw.runs ({declared})")
    for number, run in enumerate(runs):
        m = run.manifest
        policy = m.protocol.policy
        values = (
            number, m.id, m.kind, m.created, m.version, m.task.name, m.protocol.name, m.mode,
            m.cast[policy].model if policy in m.cast else None, policy, m.parent, m.checkpoint,
            str(run.path),
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO raw.runs VALUES ({marks})", values)  # noqa: S608


def _load(connection: DuckDBPyConnection, name: str, runs: Sequence[Run], text: bool) -> None:
    """Make raw.NAME of the runs' files, the newest record of a key alone."""
    kinds, key = RAW[name]
    declared = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
    connection.execute(f"CREATE TABLE raw.{name} (run_no INTEGER, {declared})")
    for number, run in enumerate(runs):
        path = run.path / f"{name}.jsonl"
        if path.exists() and path.stat().st_size:
            _read(connection, name, number, path, text)
    if runs:
        connection.execute(
            f"DELETE FROM raw.{name} WHERE rowid NOT IN "  # noqa: S608 - names of our own
            f"(SELECT max(rowid) FROM raw.{name} GROUP BY {key})"
        )


def _read(connection: DuckDBPyConnection, name: str, number: int, path: Path, text: bool) -> None:
    """Append one file to raw.NAME. A torn last line is left out, other damage is a RunError."""
    import duckdb

    read = {c: kind for c, kind in RAW[name][0].items() if text or c != "turns"}
    listed = ", ".join(f"'{column}': '{kind}'" for column, kind in read.items())
    torn = _torn(path)
    with tempfile.TemporaryDirectory() as folder:
        place = str(_plain(path, Path(folder))).replace("'", "''")
        for longest in LONGEST:
            try:
                connection.execute(
                    f"INSERT INTO raw.{name} (run_no, {', '.join(map(_quoted, read))}) "  # noqa: S608
                    f"SELECT {number}, * FROM read_json('{place}', format='newline_delimited', "
                    f"ignore_errors=true, maximum_object_size={longest << 20}, "
                    f"columns={{{listed}}})"
                )
                break
            except duckdb.Error as error:
                if longest == LONGEST[-1]:
                    line = str(error).splitlines()[0]
                    raise RunError(f"{path}: cannot be read: {line}") from None
    _drop_torn(connection, name, number, path, torn)


def _drop_torn(
    connection: DuckDBPyConnection, name: str, number: int, path: Path, torn: bool
) -> None:
    """Take out the torn last line; a line without its key anywhere else is damage."""
    table, first = f"raw.{name}", next(iter(RAW[name][0]))
    if torn:
        connection.execute(
            f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table}) "  # noqa: S608
            f"AND run_no = {number}"
        )
    count = f"SELECT count(*) FROM {table} WHERE {first} IS NULL"  # noqa: S608
    if connection.execute(count).fetchall() != [(0,)]:
        for _ in records(path):  # names the damaged line
            pass
        raise RunError(f"{path}: found a record without {first}; the file is damaged")


def _torn(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def _plain(path: Path, folder: Path) -> Path:
    """Return a name of the file that holds no wildcard, which DuckDB would follow."""
    if not set("*?[]{}") & set(str(path)):
        return path
    link = folder / path.name
    link.symlink_to(path.resolve())
    return link


def _quoted(name: str) -> str:
    return f'"{name}"'
