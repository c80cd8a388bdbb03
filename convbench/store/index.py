"""The index of a run's records: what they are chosen, joined and counted by, without their texts.

A long file of JSON lines that is written no more has one sidecar a table: a Parquet file in the
user's cache folder, named by a hash of the file's identity. A sidecar never changes, for a file
that changed has another identity, so that processes need no lock: they write equal files, each by
one rename. Nothing that lies beside a run is an index: it may have come with it. Of a file of any
length no more than HELD rows lie in memory.

Rows are joined and added up in Python, in the order of the files: a small run is taken as it lies,
where SQL would load DuckDB first.
"""

from __future__ import annotations

import glob
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import orjson

from convbench.errors import RunError
from convbench.schema import Conversation, Example, Verdict
from convbench.schema.task import Split
from convbench.store.jsonl import disk_error, lines_with_offsets
from convbench.store.keys import read_key_fields, superseded_ordinals
from convbench.store.shape import assert_single_keys, parse_object, parse_record
from convbench.store.sidecars import (
    FileIdentity,
    Sidecars,
    identify_path,
    write_rows,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS_AT_ONCE = 2_048
"""Rows that are taken from a sidecar at once: as many as DuckDB works on."""
HELD = 50_000
"""Rows of a file that lie in memory; those of a longer one go to a file, so many at once."""
WORTH = 4 << 20
"""Bytes from which on a file's rows are stored."""
SMALL = 8 << 20
"""Bytes of a file below which its lines are read sooner than what reads and writes
Parquet is loaded, which takes 80 MB."""
COUNTS_BELOW = 2**53
"""Numbers of samples, as `schema.base.Count` has them."""
KEY, IDENTITY, VERDICT = ("key",), ("key", "conversation_id"), ("conversation_id", "judge")
"""Fields that stand first in a line of each: a record that says one of them twice is refused."""


class ConversationRow(NamedTuple):
    """Who a conversation is and how it ended."""

    path: Path
    """The file that holds its record."""
    start: int
    """First byte of the record there (`store.byte_offsets`)."""
    length: int
    key: str
    conversation_id: str
    example_id: str
    sample: int
    ended: bool
    """Whether it ended well: it has something to be judged."""
    specs: str
    """Fingerprint of task, protocol and cast; empty where it tells none."""
    flags: Sequence[str]
    """Findings of the fidelity checks."""
    usd: float | None
    """What its calls cost; None where a price is unknown."""


class VerdictRow(NamedTuple):
    """What a judge gave a conversation."""

    path: Path
    start: int
    length: int
    conversation_id: str
    judge: str
    fingerprint: str
    scored: bool
    """Whether it gave scores: its verdict is no failure."""
    reward: float | None
    scores_json: str
    """Score by metric; empty where there is none."""
    details_json: str
    """What else its kind of judge notes; empty for most."""
    cost_usd: float | None
    prompt_tokens: int | None
    completion_tokens: int | None

    @property
    def scores(self) -> dict[str, float]:
        """Return the score by metric, empty if it has none."""
        return orjson.loads(self.scores_json) if self.scores_json else {}

    @property
    def details(self) -> dict[str, Any]:
        """Return what else its kind of judge records, empty for most judges."""
        return json.loads(self.details_json) if self.details_json else {}

    @property
    def usd(self) -> float | None:
        """Return what its calls cost in dollars: 0.0 if no model was asked, None if the price is
        unknown."""
        return _usd_of(self.cost_usd, self.prompt_tokens)


class ExampleRow(NamedTuple):
    """Where a question belongs."""

    path: Path
    start: int
    length: int
    example_id: str
    split: Split
    group_id: str


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class SidecarTable(Generic[Row]):
    """What is indexed of a file's lines."""

    name: str
    columns: dict[str, str]
    """Arrow types by name, in the order of the row's fields after its place."""
    read_line: Callable[[str, bytes], tuple[Any, ...]]
    """Returns the columns of a line; RunError, which begins with the words given, for a damaged
    one."""
    make_row: Callable[[Iterable[Any]], Row]
    keys: int
    """How many of the first columns name a record, of which the newest counts."""
    depends_on: str = ""
    """What a line's columns depend on beside it."""
    is_slow: bool = False
    """Whether a line's columns take so long that those of a small file are stored too."""


@dataclass(slots=True)
class _IndexedFile(Generic[Row]):
    """A file: a sidecar of its rows, or the rows."""

    path: Path
    identity: FileIdentity
    sidecar: Path | None = None
    """Or a file of this process alone."""
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """(first byte, length, columns)."""


class Index(Generic[Row]):
    """The rows of one table of some files, as the files are when it is made."""

    def __init__(self, table: SidecarTable[Row], files: Sequence[Path]) -> None:
        self._table = table
        self._sidecars = Sidecars(table.name, table.depends_on)
        self._connection: DuckDBPyConnection | None = None
        self._sources: list[_IndexedFile[Row]] = []
        self._folder: Path | None = None
        """Where rows of long files lie that are no sidecars."""
        for path in files:
            self._sources += self._index_file(path)
        self._sidecars.prune_folder()

    def newest_rows(self) -> Iterator[Row]:
        """Yield the last row of every key, in the order of the files.

        A key is the first `keys` columns of the table.
        """
        keys = self._table.keys
        older = superseded_ordinals(
            lambda: (values[2 : 2 + keys] for _, values in self._iter_values(keys))
        )
        for number, row in enumerate(self.all_rows()):
            if number not in older:
                yield row

    def all_rows(self, first: str | None = None) -> Iterator[Row]:
        """Yield every row in the order of the files, those that a later row of the same key
        replaces included.

        With `first` only rows whose first column is this text are yielded.
        """
        make = self._table.make_row
        for source, (start, *values) in self._iter_values(len(self._table.columns), first):
            yield make((source.path, start, *values))

    def _iter_values(
        self, count: int, first: str | None = None
    ) -> Iterator[tuple[_IndexedFile[Row], tuple[Any, ...]]]:
        """Yield each source with the first byte, length and so many columns of each of its rows, of
        all or of those whose first column is this."""
        for source in self._sources:
            done = 0
            if source.sidecar is not None:
                for values in self._read_sidecar(source, count, first):
                    yield source, values
                    done += 1
            rows = (values for values in source.rows if first is None or values[2] == first)
            for values in islice(rows, done, None):
                yield source, values

    def _read_sidecar(
        self, source: _IndexedFile[Row], count: int, first: str | None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows of a sidecar. One that cannot be read, or was pruned meanwhile, is taken away,
        and the source gets its rows from the file."""
        import duckdb

        columns = list(self._table.columns)
        names = ", ".join(["start", "length", *columns[:count]])
        condition = f"WHERE {columns[0]} = ?" if first is not None else ""
        if self._connection is None:
            self._connection = duckdb.connect(config={"threads": 1})
        try:
            cursor = self._connection.cursor().execute(
                f"SELECT {names} FROM read_parquet(?) {condition}",  # noqa: S608 - names of our own
                [glob.escape(str(source.sidecar)), *([] if first is None else [first])],
            )
            while batch := cursor.fetchmany(ROWS_AT_ONCE):
                yield from batch
        except duckdb.Error:
            self._sidecars.discard_sidecar(source.sidecar)
            source.sidecar, source.rows = None, self._read_again(source)

    def _index_file(self, path: Path) -> Iterator[_IndexedFile[Row]]:
        """Yield a file's rows, nothing without a file; RunError for a damaged one."""
        try:
            before = identify_path(path)
        except OSError as error:
            raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
        if before is None:
            return
        source = _IndexedFile[Row](path, before)
        stores = before.size >= WORTH and (self._table.is_slow or before.size >= SMALL)
        source.sidecar = self._sidecars.find_sidecar(before) if stores else None
        if source.sidecar is None:
            lines = self._read_lines(path)
            source.rows = list(islice(lines, HELD))
            if len(source.rows) == HELD:
                self._spill_rows(source, lines)
            if stores and before.is_settled() and identify_path(path) == before:
                self._store_source(source)
        yield source

    def _spill_rows(self, source: _IndexedFile[Row], more: Iterator[tuple[Any, ...]]) -> None:
        """Move a source's rows, and the many that follow, to a file of this process alone."""
        batches = chain([source.rows], iter(lambda: list(islice(more, HELD)), []))
        try:
            if self._folder is None:
                from convbench.store.scratch import scratch_path  # short runs need none

                self._folder = scratch_path()
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
                self._folder.mkdir(mode=0o700)
            handle, name = tempfile.mkstemp(".parquet", dir=self._folder)
            with open(handle, "wb") as file:
                write_rows(file, self._table.columns, batches)
        except OSError as error:
            raise disk_error(self._folder or Path(tempfile.gettempdir()), error) from None
        source.sidecar, source.rows = Path(name), []

    def _store_source(self, source: _IndexedFile[Row]) -> None:
        """Store a source's rows as a sidecar where that can be."""
        spilled = source.sidecar
        if spilled is None:
            stored = self._sidecars.store_rows(source.identity, self._table.columns, source.rows)
        else:
            stored = self._sidecars.store_file(source.identity, spilled)
        if stored is not None:
            source.sidecar, source.rows = stored, []
            if spilled is not None:
                spilled.unlink(missing_ok=True)

    def _read_lines(self, path: Path) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a file's whole lines; RunError for a damaged one."""
        for number, start, line in lines_with_offsets(path):
            yield (start, len(line), *self._table.read_line(f"{path}:{number}", line))

    def _read_again(self, source: _IndexedFile[Row]) -> list[tuple[Any, ...]]:
        rows = list(self._read_lines(source.path))
        if identify_path(source.path) != source.identity:
            raise RunError(f"{source.path}: changed while it was read; repeat the command")
        return rows


def _conversation_columns(where: str, line: bytes) -> tuple[Any, ...]:
    """Return a conversation's columns. Its texts are looked at by whoever reads the record."""
    (key,) = read_key_fields(where, line, KEY)
    _, conversation_id = read_key_fields(where, line, IDENTITY)
    record = parse_object(where, line, ("key", "conversation_id", "example_id"))
    for name, first in (("key", key), ("conversation_id", conversation_id)):
        if record[name] != first:
            assert_single_keys(
                where, parse_record(where, line, Conversation), (name,), hash((first,))
            )
    sample, specs = record.get("sample", 0), record.get("specs", "")
    flags, failure = record.get("flags"), record.get("failure")
    usual = (
        type(sample) is int
        and 0 <= sample < COUNTS_BELOW
        and type(specs) is str
        and (flags is None or _is_texts(flags))
        and (failure is None or type(failure) is dict)
    )
    if not usual or ("flags" in record and flags is None):
        talk = parse_record(where, line, Conversation)
        sample, specs, flags = talk.sample, talk.specs, list(talk.flags)
        failure = talk.failure
    return (
        key,
        conversation_id,
        record["example_id"],
        sample,
        failure is None,
        specs,
        flags or [],
        _sum_costs(record.get("turns")),
    )


def _sum_costs(turns: object) -> float | None:
    """Return what the calls of turns cost; None where a price is unknown."""
    calls = [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    costs = [_usd_of(turn.get("cost_usd"), turn.get("prompt_tokens")) for turn in calls]
    return None if None in costs else sum((cost or 0.0 for cost in costs), 0.0)


def _usd_of(cost: object, prompt_tokens: object) -> float | None:
    """Return what a call cost: 0 where no model was asked, None where its price is unknown."""
    if isinstance(cost, int | float):
        return float(cost)
    return None if cost is not None or prompt_tokens else 0.0


def _is_texts(values: object) -> bool:
    return type(values) is list and all(type(value) is str for value in values)


def _verdict_columns(where: str, line: bytes) -> tuple[Any, ...]:
    """Return a verdict's columns."""
    names = read_key_fields(where, line, VERDICT)
    verdict = parse_record(where, line, Verdict)
    assert_single_keys(where, verdict, VERDICT, hash(names))
    return (
        verdict.conversation_id,
        verdict.judge,
        verdict.fingerprint,
        verdict.failure is None,
        verdict.reward,
        orjson.dumps(verdict.scores).decode() if verdict.scores else "",
        json.dumps(verdict.details) if verdict.details else "",  # of any numbers, nan too
        verdict.cost_usd,
        verdict.prompt_tokens,
        verdict.completion_tokens,
    )


def _example_columns(where: str, line: bytes) -> tuple[Any, ...]:
    """Return a question's columns."""
    example = parse_record(where, line, Example)
    return example.example_id, example.split, example.group_id


CONVERSATIONS = SidecarTable(
    "conversations",
    {
        "key": "string",
        "conversation_id": "string",
        "example_id": "string",
        "sample": "int64",
        "ended": "bool",
        "specs": "string",
        "flags": "list<string>",
        "usd": "double",
    },
    _conversation_columns,
    ConversationRow._make,
    keys=1,
)
VERDICTS = SidecarTable(
    "verdicts",
    {
        "conversation_id": "string",
        "judge": "string",
        "fingerprint": "string",
        "scored": "bool",
        "reward": "double",
        "scores_json": "string",
        "details_json": "string",
        "cost_usd": "double",
        "prompt_tokens": "int64",
        "completion_tokens": "int64",
    },
    _verdict_columns,
    VerdictRow._make,
    keys=2,
)
EXAMPLES = SidecarTable(
    "examples",
    {"example_id": "string", "split": "string", "group_id": "string"},
    _example_columns,
    ExampleRow._make,
    keys=1,
)
