"""Running queries on the made databases, and telling their results apart."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from sqlglot import exp

from convbench.tasks.cosql.databases import KINDS, Maker, Rows, groups
from convbench.tasks.cosql.hints import joined, wanted
from convbench.tasks.cosql.queries import Query
from convbench.tasks.cosql.tables import Tables

OF_A_KIND = 4
"""Databases of each kind (`databases.KINDS`) per question."""


@dataclass(frozen=True)
class Digest:
    """What a query gave on one database."""

    rows: int
    """Mark of its rows with how often each came."""
    order: int | None
    """Mark of its rows in order, None where the query leaves the order open, be it among equals."""
    empty: bool

    def differs(self, other: Digest) -> bool:
        """Return whether the two are certainly different: other rows, or another order."""
        if self.rows != other.rows:
            return True
        return None not in (self.order, other.order) and self.order != other.order


@dataclass(frozen=True)
class Told:
    """A query's results on all databases of a question, kind after kind and again."""

    results: tuple[Digest | None, ...]

    @property
    def any_row(self) -> bool:
        """Whether it gives a row anywhere."""
        return any(result and not result.empty for result in self.results)

    def differs(self, other: Told) -> bool:
        """Return whether databases of each kind tell the two apart."""
        apart = [
            a is not None and b is not None and a.differs(b)
            for a, b in zip(self.results, other.results, strict=True)
        ]
        return all(any(apart[kind :: len(KINDS)]) for kind in range(len(KINDS)))


_KINDS = {"number": "INT", "boolean": "INT", "text": "TEXT", "time": "TEXT"}
_TICKS, _STEP = 400, 1000
_MOST_ROWS = 2000


class Bench:
    """The databases of one question, each in two row orders."""

    def __init__(self, gold: Query, tables: Tables, *, key: str, seed: int) -> None:
        used = {tables.numbers[t.name.lower()] for t in gold.tree.find_all(exp.Table)}
        linked = groups((*tables.foreign, *joined([gold.tree])))
        self._pairs: list[tuple[sqlite3.Connection, sqlite3.Connection]] = []
        for number in range(OF_A_KIND * len(KINDS)):
            rng, kind = _random(seed, key, number), KINDS[number % len(KINDS)]
            maker = Maker(tables, wanted([gold.tree]), linked, rng, kind)
            rows = {table: maker.rows(table) for table in sorted(used)}
            back = {table: list(reversed(found)) for table, found in rows.items()}
            self._pairs.append((_load(tables, rows), _load(tables, back)))

    def close(self) -> None:
        """Drop the databases."""
        for connection in (c for pair in self._pairs for c in pair):
            connection.close()

    def told(self, query: Query) -> Told:
        """Return the query's result on each database.

        None where it has none that counts: it fails, takes too long, gives too many rows, or
        which rows it gives depends on their order in the tables, as with `LIMIT 1` among equals.
        """
        ordered = bool(query.tree.args.get("order"))
        return Told(tuple(_result(pair, query.text, ordered) for pair in self._pairs))


def _random(seed: int, key: str, number: int) -> Random:
    return Random(hashlib.sha256(f"cosql:{seed}:{key}:{number}".encode()).digest())


def _load(tables: Tables, rows: Mapping[int, Rows]) -> sqlite3.Connection:
    """Return an in-memory database with these rows."""
    connection = sqlite3.connect(":memory:")
    for table, found in rows.items():
        columns = tables.of_table(table)
        name = _quoted(tables.names[table])
        # INT, not INTEGER: that would make a primary key the row id, and so set the row order.
        kinds = (f"{_quoted(c.name)} {_KINDS.get(c.kind, 'NUMERIC')}" for c in columns)
        connection.execute(f"CREATE TABLE {name} ({', '.join(kinds)})")
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", found)  # noqa: S608
    return connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _result(pair: Sequence[sqlite3.Connection], text: str, ordered: bool) -> Digest | None:
    """Return a query's result on a database given in two row orders."""
    first, second = (_run(connection, text) for connection in pair)
    if first is None or second is None or Counter(first) != Counter(second):
        return None
    certain = ordered and first == second
    first = _in_one_column_order(first)
    rows = hash(frozenset(Counter(first).items()))
    return Digest(rows, hash(tuple(first)) if certain else None, not first)


def _run(connection: sqlite3.Connection, text: str) -> list[tuple[object, ...]] | None:
    """Return a query's rows, None where it fails or does too much."""
    # Counts virtual machine steps, not seconds, so that every machine stops at the same point.
    ticks = iter(range(_TICKS))
    connection.set_progress_handler(lambda: next(ticks, None) is None, _STEP)
    try:
        rows = connection.execute(text).fetchmany(_MOST_ROWS)
    except (sqlite3.Error, OverflowError):
        return None
    return None if len(rows) == _MOST_ROWS else [tuple(map(_plain, row)) for row in rows]


def _in_one_column_order(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return rows with their columns sorted by what they hold: who lists the same columns in
    another order answers the same."""
    columns = sorted(zip(*rows, strict=True), key=lambda column: sorted(map(repr, column)))
    return list(zip(*columns, strict=True))


def _plain(value: object) -> object:
    """Return a value such that equal numbers are equal, whatever the rounding."""
    return round(value, 6) if isinstance(value, float) else value
