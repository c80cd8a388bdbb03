"""The viewer's rows: conversations and verdicts of some runs, as Parquet files that DuckDB reads.

Those of a sealed part are sidecars (`store/sidecars.py`), made once; those of the open tail, of
parts that have just changed, and of all where no sidecar can be stored, lie in a folder of this
process. Of a tail that grows only the new lines are read.
"""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

import hashlib
import shutil
import time
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from convbench import answers, store
from convbench.errors import RunError
from convbench.regular import open_to_read
from convbench.store import Run, guard, tables
from convbench.store.index import SETTLE_SECONDS
from convbench.store.jsonl import disk_error
from convbench.store.limits import OFTEN, spill
from convbench.store.parts import COMPRESSED, opened, part_size, raw_lines, streams
from convbench.store.places import whole
from convbench.store.scratch import scratch
from convbench.store.sidecars import GLOB, Identity, Sidecars, hash_files, identify_file
from convbench.store.tail import LOOKED_AT
from convbench.store.views import select_conversations

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SPOKEN = """CASE WHEN t.rounds IS NULL THEN [said(t.content)] ELSE list_concat(
  t.rounds->>'$[*].content', t.rounds->>'$[*].calls[*].name', t.rounds->>'$[*].calls[*].arguments',
  t.rounds->>'$[*].results[*].content', [said(t.content)]) END"""
"""The texts of a turn, in SQL: what it called of tools and what came of it, then what was said."""
TEXT = f"""lower(concat_ws(chr(10), c.example_id, e.question, array_to_string(flatten(
  [{SPOKEN} FOR t IN c.turns IF t.finish_reason <> 'scripted']), chr(10))))"""
LISTED = select_conversations(
    f"c.start, c.length, c.key, e.rowid AS asked_at, e.question, {TEXT} AS text, "
)
"""What lists, filters, figures and searches need of each conversation."""
TABLES = {
    "conversations": {
        "conversations": "SELECT * EXCLUDE (run_no) FROM raw.conversations",
        "listed": LISTED,
    },
    "verdicts": {"verdicts": "SELECT * EXCLUDE (run_no) FROM raw.verdicts"},
}
"""Files of records, and the tables that are made of each."""
ROW_GROUP = 10_240
"""Rows that are written and read together: what they hold of texts lies in memory."""
STORED = 256 << 10
"""Bytes of an open tail from which on its rows are stored, when it is read first: the run may have
ended. Grading them again would take a tenth of a second."""
PIECES = 32
"""Pieces of a tail beyond which it is read anew as one."""


class PartRows(NamedTuple):
    """The rows of one part of a file of conversations or verdicts, or of a piece of its tail."""

    run_no: int
    path: Path
    """The file, whatever its parts."""
    base: int
    """The place in it that the rows' `start` counts from (`store.places`)."""
    tables: dict[str, Path]
    """Parquet files by table."""


@dataclass(slots=True)
class _Tail:
    """What was read of a file that is appended to."""

    inode: int
    end: int = 0
    """Bytes that were read: whole lines."""
    look: str = ""
    """Hash of what stands before that."""
    pieces: list[tuple[int, dict[str, Path]]] = field(default_factory=list)
    """First byte of each, and its tables."""


class Rows:
    """Makes and finds the rows of runs that grow."""

    def __init__(self) -> None:
        self.refused = False
        """Whether a sidecar could not be stored."""
        self._folder = scratch()
        self._numbers = count()
        self._tails: dict[Path, _Tail] = {}
        self._held: dict[Identity, dict[str, Path]] = {}
        """Rows of sealed parts that are no sidecars, or not yet."""
        self._before: set[Path] = set()
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def missing(self, runs: Sequence[Run]) -> int:
        """Return the bytes of records whose rows were not made yet."""
        size = 0
        for run in runs:
            for name in TABLES:
                sidecars = _sidecars(run, name)
                for path in run.files(f"{name}.jsonl"):
                    for part, identity, _ in _parts(path):
                        read = part == path and path in self._tails
                        if not read and self._stored(sidecars, identity) is None:
                            size += _text_size(part, identity)
        return size

    def collect(self, runs: Sequence[Run]) -> list[PartRows]:
        """Return the rows of these runs as they are now. Raises RunError for damaged records."""
        rows: list[PartRows] = []
        for number, run in enumerate(runs):
            with closing(_Maker(run)) as maker:
                for name in TABLES:
                    for path in run.files(f"{name}.jsonl"):
                        rows += self._collect(maker, number, name, path)
        self._forget(rows)
        return rows

    def collect_first(self, runs: Sequence[Run], most: int) -> list[PartRows]:
        """Return the rows of the first `most` conversations of each run, and of as many verdicts of
        each judge."""
        rows: list[PartRows] = []
        for number, run in enumerate(runs):
            judges = len(list((run.path / "judges").glob("*.json"))) or 1
            with closing(_Maker(run)) as maker:
                for name, lines in (("conversations", most), ("verdicts", most * judges)):
                    for path in run.files(f"{name}.jsonl")[:1]:
                        piece = self._piece(islice(raw_lines(path), lines))
                        rows += [
                            PartRows(number, path, 0, tables)
                            for tables in self._make(maker, name, path, piece)
                        ]
        self._before = {path for one in rows for path in one.tables.values()}
        return rows

    def discard(self, paths: Sequence[Path]) -> bool:
        """Remove the sidecars among these files; return False where there is none."""
        stored = [path for path in paths if path.parent != self._folder and path.exists()]
        for path in stored:
            path.unlink(missing_ok=True)
        self._tails.clear()
        return bool(stored)

    def _collect(self, maker: _Maker, number: int, name: str, path: Path) -> Iterator[PartRows]:
        """Yield the rows of each part of a file."""
        base = 0
        for part, identity, stream in _parts(path):
            found = self._stored(maker.sidecars(name), identity)
            if found is None and part == path:
                for start, tables in self._grown(maker, name, path, identity, stream).pieces:
                    yield PartRows(number, path, base + start, tables)
                continue
            if found is None:
                found = next(self._make(maker, name, path, part), {})
            if found and identify_file(part, stream) == identity:
                found = self._store(maker.sidecars(name), identity, found)
            if part == path and path in self._tails:
                self._tails[path].pieces = [(0, found)]
            if found:
                yield PartRows(number, path, base, found)
            base += _text_size(part, identity)

    def _stored(
        self, sidecars: Mapping[str, Sidecars], identity: Identity
    ) -> dict[str, Path] | None:
        """Return the tables of a part that was not changed since they were made."""
        if held := self._held.get(identity):
            return held
        found = {table: one.find_sidecar(identity) for table, one in sidecars.items()}
        paths = {table: path for table, path in found.items() if path is not None}
        return paths if len(paths) == len(found) else None

    def _store(
        self, sidecars: Mapping[str, Sidecars], identity: Identity, made: dict[str, Path]
    ) -> dict[str, Path]:
        """Return the tables of a part as sidecars, where that may be and was not done."""
        if all(path.parent != self._folder for path in made.values()):
            return made
        self._held[identity] = made
        if time.time() - identity.changed_ns / 1e9 <= SETTLE_SECONDS:
            return made
        stored: dict[str, Path] = {}
        for table, one in sidecars.items():
            path = one.store_file(identity, made[table])
            if path is None:
                self.refused = True
                return made
            stored[table] = path
        del self._held[identity]
        return stored

    def _grown(
        self, maker: _Maker, name: str, path: Path, identity: Identity, stream: BinaryIO
    ) -> _Tail:
        """Return what was read of a file that is appended to, its new lines too."""
        tail = self._tails.get(path)
        same = tail is not None and tail.inode == identity.inode and tail.end <= identity.size
        if (
            tail is None
            or not same
            or len(tail.pieces) > PIECES
            or tail.look != _look(stream, tail.end)
        ):
            tail = self._tails[path] = _Tail(identity.inode)
        if identity.size > tail.end:
            stream.seek(tail.end)
            piece = self._piece(_blocks(stream, identity.size - tail.end))
            end = tail.end + whole(piece)
            made = list(self._make(maker, name, path, piece))
            pieces = [*tail.pieces, *((tail.end, tables) for tables in made)]
            if not tail.end and identity.size >= STORED and identify_file(path, stream) == identity:
                pieces = [(0, self._store(maker.sidecars(name), identity, one)) for one in made]
            tail.end, tail.look, tail.pieces = end, _look(stream, end), pieces
        return tail

    def _make(self, maker: _Maker, name: str, path: Path, part: Path) -> Iterator[dict[str, Path]]:
        """Make the tables of a part; none where it holds no record."""
        made = {table: self._new(".parquet") for table in TABLES[name]}
        try:
            complete = maker.make(name, path, part, made)
        except RunError:
            if part.exists():
                raise
            complete = maker.make(name, path, part.with_name(part.name + COMPRESSED), made)
        if complete:
            yield made
        if part.parent == self._folder:
            part.unlink()

    def _piece(self, blocks: Iterable[bytes]) -> Path:
        """Return a file of lines, to be read as a part."""
        piece = self._new(".jsonl")
        try:
            with piece.open("wb") as file:
                file.writelines(blocks)
        except OSError as error:
            raise disk_error(piece, error) from None
        return piece

    def _new(self, ending: str) -> Path:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise disk_error(self._folder, error) from None
        if not GLOB.isdisjoint(str(self._folder)):
            raise RunError(f"{self._folder}: has a letter of patterns; name another with TMPDIR")
        return self._folder / f"{next(self._numbers)}{ending}"

    def _forget(self, rows: Sequence[PartRows]) -> None:
        """Remove files that neither these rows nor those before them have, which somebody may still
        be asking."""
        now = {path for one in rows for path in one.tables.values()}
        self._held = {of: made for of, made in self._held.items() if now >= set(made.values())}
        if self._folder.is_dir():
            for path in self._folder.glob("*.parquet"):
                if path not in now | self._before:
                    path.unlink(missing_ok=True)
        self._before = now


class _Maker:
    """Makes tables of parts of one run, in a database of its own that no user asks."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._stack = ExitStack()
        self._sidecars: dict[str, dict[str, Sidecars]] = {}
        self._spills = False
        self._connection: DuckDBPyConnection | None = None

    def sidecars(self, name: str) -> dict[str, Sidecars]:
        """Return the sidecars of each table of a file of records."""
        if name not in self._sidecars:
            self._sidecars[name] = _sidecars(self.run, name)
        return self._sidecars[name]

    def make(self, name: str, path: Path, part: Path, made: dict[str, Path]) -> bool:
        """Write the tables of a part; return False where it holds no record. Raises RunError for a
        damaged one."""
        import duckdb

        try:
            return self._make(self._connect(part), name, path, part, made)
        except duckdb.Error as error:
            raise RunError(f"{path}: cannot be indexed: {guard.first(error):.300}") from None
        except OSError as error:
            raise _unreadable(path, error) from None

    def _make(
        self,
        connection: DuckDBPyConnection,
        name: str,
        path: Path,
        part: Path,
        made: Mapping[str, Path],
    ) -> bool:
        import pyarrow

        tables.read_part(connection, name, path, part)
        starts, lengths = _spans(part)
        if not starts:
            return False
        spans = pyarrow.table({"k": range(len(starts)), "start": starts, "length": lengths})
        connection.register("spans", spans)
        connection.execute(
            f"CREATE TABLE raw.placed AS SELECT k.*, s.start, s.length FROM raw.{name} k "
            "JOIN spans s ON s.k = k.rowid"
        )
        connection.unregister("spans")
        connection.execute(f"DROP TABLE raw.{name}")
        connection.execute(f"ALTER TABLE raw.placed RENAME TO {name}")
        (placed,) = connection.execute(f"SELECT count(*) FROM raw.{name}").fetchall()
        if placed[0] != len(starts):
            raise RunError(f"{path}: found lines that are no records; the file is damaged")
        for table, sql in TABLES[name].items():
            connection.execute(
                f"COPY (SELECT * FROM ({sql})) TO {tables.literal(made[table])} "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"
            )
        return True

    def _connect(self, part: Path) -> DuckDBPyConnection:
        if self._connection is None:
            self._connection = tables.connect([self.run], ("examples",), closed=False)
            self._stack.callback(self._connection.close)
        if not self._spills:
            self._spills = spill(self._connection, part_size(part), OFTEN)
        return self._connection

    def close(self) -> None:
        """Free the memory, and keep the folder of sidecars within its bound."""
        self._stack.close()
        for sidecars in self._sidecars.values():
            for one in sidecars.values():
                one.prune_folder()


def _parts(path: Path) -> Iterator[tuple[Path, Identity, BinaryIO]]:
    """Yield every part of a file, open. Raises RunError for what cannot be read."""
    try:
        for part, stream in streams(path):
            yield part, identify_file(part, stream), stream
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> RunError:
    return RunError(f"{path}: cannot be read: {error.strerror or error}")


def _spans(part: Path) -> tuple[array[int], array[int]]:
    """Return where each record of a part begins, and its bytes."""
    starts, lengths, at = array("q"), array("q"), 0
    with opened(part) if part.suffix == COMPRESSED else open_to_read(part) as lines:
        for line in lines:
            if line.endswith(b"\n") and line != b"\n":
                starts.append(at)
                lengths.append(len(line))
            at += len(line)
    return starts, lengths


def _text_size(part: Path, identity: Identity) -> int:
    """Return the bytes of text in a part."""
    return part_size(part) if part.suffix == COMPRESSED else identity.size


def _look(stream: BinaryIO, end: int) -> str:
    """Return a hash of what stands before a byte: whether a file is still the one that was read."""
    start = max(0, end - LOOKED_AT)
    stream.seek(start)
    return hashlib.sha256(stream.read(end - start)).hexdigest()


def _blocks(stream: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield so many bytes from where a file stands, some at a time."""
    while length and (block := stream.read(min(length, 1 << 20))):
        length -= len(block)
        yield block


def _sidecars(run: Run, name: str) -> dict[str, Sidecars]:
    """Return the sidecars of each table of a file of records."""
    beside = [_program()]
    if name == "conversations":  # what they are graded by
        questions = [identify_file(*one) for one in streams(run.examples_file)]
        beside += [run.manifest.model_dump_json(), repr(questions)]
    return {table: Sidecars(f"view {table}", repr(beside)) for table in TABLES[name]}


@cache
def _program() -> str:
    """Return a hash of what makes the tables: another program would fill them otherwise."""
    rooms = (Path(room.__file__ or "").parent for room in (answers, store))
    files = [path for room in rooms for path in room.rglob("*.py")]
    return version("duckdb") + hash_files([*files, Path(__file__)])
