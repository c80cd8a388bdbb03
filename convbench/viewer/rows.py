"""The viewer's rows: conversations and verdicts of some runs, as Parquet files that DuckDB reads.

Those of a long file that is written no more are sidecars (`store/sidecars.py`), made once; those of
a file that has just changed, and of all where no sidecar can be stored, lie in a folder of this
process. Of a file that grows only the new lines are read.
"""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

import hashlib
import shutil
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from convbench import answers, store
from convbench.errors import RunError
from convbench.store import Run, guard, tables
from convbench.store.byte_offsets import end_of_lines, size_of
from convbench.store.jsonl import disk_error, raw_lines
from convbench.store.limits import OFTEN, allow_spilling
from convbench.store.scratch import scratch_path
from convbench.store.sidecars import (
    GLOB,
    FileIdentity,
    Sidecars,
    hash_files,
    identify_file,
    identify_path,
)
from convbench.store.tail import LOOKED_AT
from convbench.store.views import select_conversations
from convbench.util.regular import open_to_read

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SPOKEN = """CASE WHEN t.rounds IS NULL THEN [said(t.content)] ELSE list_concat(
  t.rounds->>'$[*].content', t.rounds->>'$[*].calls[*].name', t.rounds->>'$[*].calls[*].arguments',
  t.rounds->>'$[*].results[*].content', [said(t.content)]) END"""
"""The texts of a turn, in SQL: what it called of tools and what came of it, then what was said."""
TEXT = f"""lower(concat_ws(chr(10), c.example_id, e.question, array_to_string(flatten(
  [{SPOKEN} FOR t IN c.turns IF t.finish_reason <> 'scripted']), chr(10))))"""
RECORD = {
    name: "{" + ", ".join(f"'{column}': c.\"{column}\"" for column in tables.RAW[name][0]) + "}"
    for name in ("conversations", "verdicts")
}
"""Each record as it stands."""
ROWS = {
    "conversations": select_conversations(
        f"c.start, c.length, c.key, e.rowid AS asked_at, e.question, {TEXT} AS text, "
        f"{RECORD['conversations']} AS record, "
    ),
    "verdicts": f"SELECT c.start, {RECORD['verdicts']} AS record FROM raw.verdicts c",
}
"""What is stored of each file of records: of conversations beside the record what lists, filters,
figures and searches need."""
ROW_GROUP = 10_240
"""Rows that are written and read together: what they hold of texts lies in memory."""
PIECES = 32
"""Pieces of a file beyond which it is read anew as one."""


class PieceRows(NamedTuple):
    """The rows of a file of conversations or verdicts, or of a piece of it."""

    run_no: int
    name: str
    path: Path
    """The file."""
    base: int
    """The place in it that the rows' `start` counts from (`store.byte_offsets`)."""
    rows: Path
    """Parquet."""


@dataclass(slots=True)
class _Tail:
    """What was read of a file that is appended to."""

    inode: int
    end: int = 0
    """Bytes that were read: whole lines."""
    look: str = ""
    """Hash of what stands before that."""
    pieces: list[tuple[int, Path]] = field(default_factory=list)
    """First byte of each, and its rows."""


class RowFiles:
    """Makes and finds the rows of runs that grow."""

    def __init__(self) -> None:
        self._folder = scratch_path()
        self._numbers = count()
        self._tails: dict[Path, _Tail] = {}
        self._held: dict[FileIdentity, Path] = {}
        """Rows of whole files that are no sidecars, or not yet."""
        self._before: set[Path] = set()
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def missing_bytes(self, runs: Sequence[Run]) -> int:
        """Return the bytes of records of these runs whose rows were not made yet; the new lines of
        a file already read do not count."""
        size = 0
        for run in runs:
            for name, sidecars in _RowMaker(run).sidecars.items():
                path = run.path / f"{name}.jsonl"
                identity = identify_path(path)
                if identity is None or path in self._tails:
                    continue
                if self._find_rows(sidecars, identity) is None:
                    size += identity.size
        return size

    def collect_rows(self, runs: Sequence[Run]) -> list[PieceRows]:
        """Return the rows of these runs as they are now, an item for each piece of a file; what is
        missing is made and stored.

        Raise RunError for damaged records.
        """
        piece_rows: list[PieceRows] = []
        for number, run in enumerate(runs):
            with closing(_RowMaker(run)) as maker:
                for name in ROWS:
                    path = run.path / f"{name}.jsonl"
                    pieces = self._collect_file(maker, name, path)
                    piece_rows += [PieceRows(number, name, path, *piece) for piece in pieces]
        self._remove_unused(piece_rows)
        return piece_rows

    def collect_first(self, runs: Sequence[Run], most: int) -> list[PieceRows]:
        """Return the rows of the first `most` conversations of each run, and of its first verdicts,
        `most` times the number of its judges.

        Raise RunError for damaged records.
        """
        piece_rows: list[PieceRows] = []
        for number, run in enumerate(runs):
            judges = len(list((run.path / "judges").glob("*.json"))) or 1
            with closing(_RowMaker(run)) as maker:
                for name, lines in (("conversations", most), ("verdicts", most * judges)):
                    path = run.path / f"{name}.jsonl"
                    piece = self._write_lines(islice(raw_lines(path), lines))
                    if rows := self._make_rows(maker, name, path, piece):
                        piece_rows.append(PieceRows(number, name, path, 0, rows))
        self._remove_unused(piece_rows)
        return piece_rows

    def _collect_file(self, maker: _RowMaker, name: str, path: Path) -> Sequence[tuple[int, Path]]:
        """Return the first byte and the rows of each piece of a file; none without a file."""
        if not path.exists():
            return ()
        sidecars = maker.sidecars[name]
        try:
            with open_to_read(path) as stream:
                identity = identify_file(path, stream)
                rows = self._find_rows(sidecars, identity)
                if rows is None:
                    return self._extend_tail(maker, name, path, identity, stream).pieces
                if identify_file(path, stream) == identity:
                    rows = self._store_rows(sidecars, identity, rows)
                end = end_of_lines(path)
                look = _tail_hash(stream, end)
        except OSError as error:
            raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
        self._tails[path] = _Tail(identity.inode, end, look, [(0, rows)])
        return self._tails[path].pieces

    def _find_rows(self, sidecars: Sidecars, identity: FileIdentity) -> Path | None:
        """Return the rows of a file that was not changed since they were made."""
        return self._held.get(identity) or sidecars.find_sidecar(identity)

    def _store_rows(self, sidecars: Sidecars, identity: FileIdentity, rows: Path) -> Path:
        """Return the rows of a file as a sidecar, where that may be and was not done."""
        if rows.parent != self._folder:
            return rows
        stored = sidecars.store_file(identity, rows) if identity.is_settled() else None
        if stored is None:
            self._held[identity] = rows
        else:
            self._held.pop(identity, None)
        return stored or rows

    def _extend_tail(
        self, maker: _RowMaker, name: str, path: Path, identity: FileIdentity, stream: BinaryIO
    ) -> _Tail:
        """Return what was read of a file that is appended to, its new lines too."""
        tail = self._tails.get(path, _Tail(identity.inode))
        same = tail.inode == identity.inode and tail.end <= identity.size
        # a sidecar may have been pruned
        same = same and all(rows.exists() for _, rows in tail.pieces)
        if not same or len(tail.pieces) > PIECES or tail.look != _tail_hash(stream, tail.end):
            tail = _Tail(identity.inode)
        self._tails[path] = tail
        if identity.size > tail.end:
            stream.seek(tail.end)
            piece = self._write_lines(_read_blocks(stream, identity.size - tail.end))
            start, end = tail.end, tail.end + end_of_lines(piece)
            rows = self._make_rows(maker, name, path, piece)
            if rows and not start and identify_file(path, stream) == identity:
                rows = self._store_rows(maker.sidecars[name], identity, rows)
            tail.pieces += [(start, rows)] if rows else []
            tail.end, tail.look = end, _tail_hash(stream, end)
        return tail

    def _make_rows(self, maker: _RowMaker, name: str, path: Path, piece: Path) -> Path | None:
        """Make the rows of a piece, and remove it; None where it holds no record."""
        rows = self._new_path(".parquet")
        any_rows = maker.make_rows(name, path, piece, rows)
        piece.unlink()
        return rows if any_rows else None

    def _write_lines(self, blocks: Iterable[bytes]) -> Path:
        """Return a file of lines, to be read as a piece."""
        piece = self._new_path(".jsonl")
        try:
            with piece.open("wb") as file:
                file.writelines(blocks)
        except OSError as error:
            raise disk_error(piece, error) from None
        return piece

    def _new_path(self, ending: str) -> Path:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise disk_error(self._folder, error) from None
        if not GLOB.isdisjoint(str(self._folder)):
            raise RunError(
                f"{self._folder}: contains a wildcard character; set TMPDIR to another folder"
            )
        return self._folder / f"{next(self._numbers)}{ending}"

    def _remove_unused(self, piece_rows: Sequence[PieceRows]) -> None:
        """Remove files that neither these rows nor those before them have, which somebody may still
        be asking."""
        now = {piece.rows for piece in piece_rows}
        self._held = {of: rows for of, rows in self._held.items() if rows in now}
        for path in self._folder.glob("*.parquet") if self._folder.is_dir() else ():
            if path not in now | self._before:
                path.unlink(missing_ok=True)
        self._before = now


class _RowMaker:
    """Makes rows of one run, in a database of its own that no user asks."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def sidecars(self) -> dict[str, Sidecars]:
        """The sidecars of each file of records."""
        questions = identify_path(self.run.examples_file)
        graded_by = repr((self.run.manifest.model_dump_json(), questions))
        return {
            "conversations": Sidecars("view conversations", _program_hash() + graded_by),
            "verdicts": Sidecars("view verdicts", _program_hash()),
        }

    @cached_property
    def _connection(self) -> DuckDBPyConnection:
        connection = tables.connect_runs([self.run], ("examples",), closed=False)
        allow_spilling(connection, size_of(self.run.conversations_file), OFTEN)
        return connection

    def make_rows(self, name: str, path: Path, piece: Path, rows: Path) -> bool:
        """Write the rows of a piece; return False where it holds no record. Raises RunError for a
        damaged one."""
        import duckdb
        import pyarrow

        try:
            connection = self._connection
            tables.read_piece(connection, name, path, piece)
            starts, lengths = _line_spans(piece)
            spans = pyarrow.table({"k": range(len(starts)), "start": starts, "length": lengths})
            connection.register("spans", spans)
            connection.execute(
                f"CREATE TABLE raw.placed AS SELECT c.*, s.start, s.length FROM raw.{name} c "
                "JOIN spans s ON s.k = c.rowid"
            )
            connection.unregister("spans")
            connection.execute(f"DROP TABLE raw.{name}")
            connection.execute(f"ALTER TABLE raw.placed RENAME TO {name}")
            (placed,) = connection.execute(f"SELECT count(*) FROM raw.{name}").fetchall()
            if placed[0] != len(starts):
                raise RunError(f"{path}: found lines that are no records; the file is damaged")
            connection.execute(
                f"COPY (SELECT * FROM ({ROWS[name]})) TO {tables.sql_literal(rows)} "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"
            )
        except duckdb.Error as error:
            raise RunError(f"{path}: cannot be indexed: {guard.first_line(error):.300}") from None
        except OSError as error:
            raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
        return bool(starts)

    def close(self) -> None:
        """Free the memory, and keep the folder of sidecars within its bound."""
        if "_connection" in self.__dict__:
            self._connection.close()
            for sidecars in self.sidecars.values():
                sidecars.prune_folder()


def _line_spans(piece: Path) -> tuple[array[int], array[int]]:
    """Return where each record of a piece begins, and its bytes."""
    starts, lengths, at = array("q"), array("q"), 0
    with open_to_read(piece) as lines:
        for line in lines:
            if line.endswith(b"\n") and line != b"\n":
                starts.append(at)
                lengths.append(len(line))
            at += len(line)
    return starts, lengths


def _tail_hash(stream: BinaryIO, end: int) -> str:
    """Return a hash of what stands before a byte: whether a file is still the one that was read."""
    start = max(0, end - LOOKED_AT)
    stream.seek(start)
    return hashlib.sha256(stream.read(end - start)).hexdigest() if end else ""


def _read_blocks(stream: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield so many bytes from where a file stands, some at a time."""
    while length and (block := stream.read(min(length, 1 << 20))):
        length -= len(block)
        yield block


@cache
def _program_hash() -> str:
    """Return a hash of what makes rows: another program would fill them otherwise."""
    rooms = (Path(room.__file__ or "").parent for room in (answers, store))
    files = [path for room in rooms for path in room.rglob("*.py")]
    return version("duckdb") + hash_files([*files, Path(__file__)])
