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
from convbench.regular import open_to_read
from convbench.schema import Conversation, Example, Verdict
from convbench.schema.conversation import TurnCredit
from convbench.schema.gold import GoldLabel
from convbench.schema.judge import Comparison
from convbench.schema.noun import LARGEST
from convbench.store import columns, views
from convbench.store.grades import register
from convbench.store.jsonl import lines
from convbench.store.label import read_label
from convbench.store.limits import ONCE, Room, interruptible, seal_memory, spill
from convbench.store.parts import COMPRESSED, checked_frames, files
from convbench.store.places import size_of, whole
from convbench.store.run import Run
from convbench.store.shape import an_object, checked

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

EVERYTHING = views.ALL
RAW: dict[str, tuple[Mapping[str, str], str]] = {
    "conversations": (columns.CONVERSATIONS, "run_no, key"),
    "verdicts": (columns.VERDICTS, "run_no, conversation_id, judge"),
    "comparisons": (columns.COMPARISONS, 'run_no, "first", "second", fingerprint'),
    "examples": (columns.EXAMPLES, "run_no, example_id"),
    "advantages": (columns.ADVANTAGES, "run_no, conversation_id, turn_index, source"),
    "gold_labels": (columns.GOLD_LABELS, "run_no, conversation_id, rater"),
}
"""Columns of each file, and the key of its records: the last record of a key counts."""

PLACES = {"gold_labels": "gold/labels.jsonl"}
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
    f"OR NOT coalesce(abs(reward) <= {LARGEST}, true) OR cost_usd < 0",
    "comparisons": '"first" IS NULL OR "second" IS NULL OR judge IS NULL OR attempts < 0 '
    "OR NOT coalesce(preferred BETWEEN 0 AND 1, true) OR cost_usd < 0",
    "examples": "example_id IS NULL OR task IS NULL OR split IS NULL OR group_id IS NULL OR "
    "question IS NULL OR len([1 FOR c IN choices IF c.label IS NULL OR c.text IS NULL]) > 0",
    "advantages": "conversation_id IS NULL OR source IS NULL OR turn_index IS NULL OR "
    f"turn_index < 0 OR NOT coalesce(abs(advantage) <= {LARGEST}, false)",
    "gold_labels": "conversation_id IS NULL OR rater IS NULL OR rater = '' OR "
    f"len([1 FOR s IN map_values(scores) IF NOT coalesce(abs(s) <= {LARGEST}, false)]) > 0",
}
"""Condition for invalid records that DuckDB reads without an error."""

CLOSED = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)
AT_ONCE = 4
"""Parts of a file that are read at once: DuckDB holds buffers for each."""
LONGEST = (1, 16, 256)
"""Largest record in MiB: limits that are tried in turn, since a large one costs memory."""


@interruptible()
def connect(
    runs: Sequence[Run],
    wanted: Collection[str] = EVERYTHING,
    *,
    text: bool = True,
    room: Room = ONCE,
    laid: Mapping[str, Sequence[str]] = MappingProxyType({}),
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
    needed = {raw for view in wanted for raw in views.NEEDS[view]}
    sources = (one for run in runs for raw in needed for one in _files(run, raw))
    spilling = spill(connection, sum(map(size_of, sources)), room)
    try:
        connection.execute("CREATE SCHEMA raw")
        _load_runs(connection, runs)
        for name in RAW:
            if name not in laid:
                _load(connection, name, runs if name in needed else (), text)
            for statement in laid.get(name, ()):
                connection.execute(statement)
            if name == "conversations" and _twice(connection, name, "run_no, conversation_id"):
                _refuse_twice(connection, name, "conversation_id", runs)
    except RunError:
        connection.close()
        raise
    if not spilling:
        seal_memory(connection)
    judges = (spec for run in runs for spec in run.judge_specs().values())
    register(connection, runs)
    if readable:
        allowed = ", ".join(literal(path) for path in readable)
        connection.execute(f"SET allowed_paths = [{allowed}]")
    for statement in CLOSED if closed else ():
        connection.execute(statement)
    for statement in views.statements(views.metric_columns(judges)):
        connection.execute(statement)
    return connection


def _load_runs(connection: DuckDBPyConnection, runs: Sequence[Run]) -> None:
    declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.RUNS.items())
    connection.execute(f"CREATE TABLE raw.runs ({declared})")
    for number, run in enumerate(runs):
        m = run.manifest
        policy, label = m.protocol.policy, read_label(run)
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
            list(label.tags),
            label.note,
            str(run.path),
        )
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO raw.runs VALUES ({marks})", values)  # noqa: S608
    connection.execute(
        "CREATE TABLE raw.judges (run_no INTEGER, fingerprint VARCHAR, fence VARCHAR)"
    )
    for number, run in enumerate(runs):
        for mark, spec in run.judge_specs().items():
            connection.execute(
                "INSERT INTO raw.judges VALUES (?, ?, ?)", [number, mark, spec.fence]
            )


def _load(connection: DuckDBPyConnection, name: str, runs: Sequence[Run], text: bool) -> None:
    """Create raw.NAME from the files of the runs, with only the newest record of a key."""
    _, key = RAW[name]
    _make(connection, name)
    for number, run in enumerate(runs):
        for path in _files(run, name):
            if path.exists() and not path.is_file():
                raise RunError(f"{path}: found no file; expected JSON lines")
            if size_of(path):
                _read(connection, name, number, path, None, text)
    if name == "examples" and _twice(connection, name, "run_no, example_id"):
        _refuse_twice(connection, name, "example_id", runs)
    if _twice(connection, name, key):
        connection.execute(
            f"DELETE FROM raw.{name} WHERE rowid NOT IN "  # noqa: S608 - names of our own
            f"(SELECT max(rowid) FROM raw.{name} GROUP BY {key})"
        )


def read_part(connection: DuckDBPyConnection, name: str, path: Path, part: Path) -> None:
    """Create raw.NAME from one part of a run's file, with every record of it. Raises RunError for a
    damaged file."""
    _make(connection, name)
    _read(connection, name, 0, path, part, text=True)


def _make(connection: DuckDBPyConnection, name: str) -> None:
    declared = ", ".join(f'"{column}" {kind}' for column, kind in RAW[name][0].items())
    connection.execute(f"CREATE OR REPLACE TABLE raw.{name} (run_no INTEGER, {declared})")


def _files(run: Run, name: str) -> list[Path]:
    """Return the files of a run from which a raw table is read."""
    if name in ("examples", *PLACES):
        return [run.path / PLACES.get(name, f"{name}.jsonl")]
    return run.files(f"{name}.jsonl")


def _twice(connection: DuckDBPyConnection, name: str, key: str) -> bool:
    """Return True if hashes of these columns are equal for any two records. Takes a tenth of the
    memory that comparing the columns themselves would."""
    counts = f"SELECT count(*), count(DISTINCT hash({key})) FROM raw.{name}"  # noqa: S608
    every, different = connection.execute(counts).fetchall()[0]
    return bool(every != different)


def _refuse_twice(
    connection: DuckDBPyConnection, name: str, column: str, runs: Sequence[Run]
) -> None:
    """Raise RunError if two records of a run have the same value in a column."""
    found = connection.execute(
        f"SELECT run_no, {column} FROM raw.{name} GROUP BY ALL HAVING count(*) > 1 LIMIT 1"  # noqa: S608
    ).fetchone()
    if found is not None:
        path = runs[found[0]].path / f"{name}.jsonl"
        raise RunError(f"{path}: {column}: found {found[1]!r:.80} for two records; expected one")


def _read(
    connection: DuckDBPyConnection,
    name: str,
    number: int,
    path: Path,
    part: Path | None,
    text: bool,
) -> None:
    """Append one file, or one part of it, to raw.NAME. A torn last line is left out. Raises
    RunError for other damage."""
    import duckdb

    read = {c: kind for c, kind in RAW[name][0].items() if text or c != "turns"}
    listed = ", ".join(f"'{column}': '{kind}'" for column, kind in read.items())
    insert = (
        f"INSERT INTO raw.{name} (run_no, {', '.join(map(_quoted, read))}) "  # noqa: S608
        f"SELECT {number}, * FROM read_json([%s], format='newline_delimited', "
        f"maximum_object_size=%d, columns={{{listed}}})"
    )
    said = ""
    with tempfile.TemporaryDirectory() as folder:
        for longest in LONGEST:  # a further try also helps if the file grew while it was read
            connection.execute("BEGIN")
            try:
                places = [
                    literal(one) for one in _readable([part] if part else files(path), Path(folder))
                ]
                for start in range(0, len(places), AT_ONCE):
                    some = ", ".join(places[start : start + AT_ONCE])
                    connection.execute(insert % (some, longest << 20))
                connection.execute("COMMIT")
                break
            except (duckdb.Error, FileNotFoundError) as error:
                connection.execute("ROLLBACK")
                _name_fault(path, name)
                said = str(error).splitlines()[0]
                if isinstance(error, duckdb.OutOfMemoryException):  # a larger limit cannot help
                    raise RunError(f"{path}: cannot be read: {said:.300}") from None
        else:
            raise RunError(f"{path}: cannot be read: {said:.300}")
    wrong = f"SELECT count(*) FROM raw.{name} WHERE run_no = {number} AND ({WRONG[name]})"  # noqa: S608
    if connection.execute(wrong).fetchall() != [(0,)]:
        _name_fault(path, name)
        raise RunError(f"{path}: found a record of the wrong shape; the file is damaged")


def _name_fault(path: Path, name: str) -> None:
    """Raise RunError for the first invalid record of a file, if there is any."""
    for number, line in lines(path):
        where = f"{path}:{number}"
        an_object(where, line)
        checked(where, line, MODELS[name])


def _readable(parts: Sequence[Path], folder: Path) -> list[Path]:
    """Return paths that DuckDB can read instead of these parts: the part itself, a link in `folder`
    if its name has wildcards, or a copy of its complete lines if the last one is torn."""
    found = []
    for one in parts:
        packed = one.suffix == COMPRESSED
        if packed:
            checked_frames(one)
        size = one.stat().st_size if packed else whole(one)
        if not size:
            continue
        cut = size != one.stat().st_size
        if not cut and not set("*?[]{}") & set(str(one)):
            found.append(one)
            continue
        other = folder / f"{len(found)}-{one.name}"
        other.unlink(missing_ok=True)
        if cut:
            _copy(one, other, size)
        else:
            other.symlink_to(one.resolve())
        found.append(other)
    return found


def _copy(path: Path, other: Path, length: int) -> None:
    """Copy the first `length` bytes of a file."""
    with open_to_read(path) as source, other.open("wb") as target:
        while part := source.read(min(length - target.tell(), 1 << 20)):
            target.write(part)


def literal(path: Path) -> str:
    """Return a path as an SQL string literal."""
    return "'" + str(path).replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return f'"{name}"'
