"""Small random databases that honour a schema's types and keys and hold what queries ask for, and
the results of queries on them.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from sqlglot import exp

from convbench.tasks.cosql.queries import COLUMN, Column, DatabaseSchema, Query

Value = int | float | str | None

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Between, exp.In)


def compared_values(trees: Iterable[exp.Expression]) -> dict[int, list[Value]]:
    """Return the values that these queries compare each schema column with."""
    values: dict[int, list[Value]] = defaultdict(list)
    for tree in trees:
        for node in tree.find_all(*_COMPARISONS):
            sides = _direct_nodes(node, exp.Column, exp.AggFunc)
            named = (column for side in sides for column in side.find_all(exp.Column))
            columns = [column.meta[COLUMN] for column in named if COLUMN in column.meta]
            for literal in _direct_nodes(node, exp.Literal) if len(columns) == 1 else ():
                value = _literal_value(literal, pattern=isinstance(node, exp.Like))
                if value not in values[columns[0]]:
                    values[columns[0]].append(value)
    return dict(values)


def joined_columns(trees: Iterable[exp.Expression]) -> Iterator[tuple[int, int]]:
    """Yield pairs of schema columns that are compared with each other and so share values."""
    for tree in trees:
        for node in tree.find_all(exp.EQ, exp.In):
            columns = [c.meta[COLUMN] for c in node.find_all(exp.Column) if COLUMN in c.meta]
            if len(columns) >= 2:
                yield columns[0], columns[1]


def _direct_nodes(node: exp.Expression, *kinds: type[exp.Expression]) -> list[exp.Expression]:
    """Return the nodes of these kinds that are direct arguments, not those of nested queries."""
    return [child for child in node.iter_expressions() if isinstance(child, kinds)]


def _literal_value(literal: exp.Expression, *, pattern: bool) -> Value:
    """Return a literal's value; for a LIKE pattern, a text that matches it."""
    text = str(literal.name)
    if pattern:
        return text.replace("%", "").replace("_", "a")
    if literal.args.get("is_string"):
        return text
    return float(text) if "." in text or "e" in text.lower() else int(text)


Rows = list[tuple[Value, ...]]

# fmt: off
_WORDS = (
    "Alder", "Amber", "Aspen", "Basil", "Birch", "Brook", "Cedar", "Clover", "Coral", "Crane",
    "Dale", "Dawn", "Ember", "Fern", "Flint", "Garnet", "Hazel", "Heron", "Iris", "Ivy", "Jade",
    "Juniper", "Lark", "Laurel", "Linden", "Maple", "Mesa", "Olive", "Opal", "Pearl", "Pine",
    "Quill", "Raven", "Reed", "Robin", "Rowan", "Sage", "Sorrel", "Tansy", "Wren",
)
# fmt: on


@dataclass(frozen=True)
class DatabaseKind:
    """What the columns outside keys look like."""

    rows: tuple[int, int]
    """Fewest and most rows of a table that refers to no other."""
    values: tuple[int, ...]
    """How many values a column takes beyond the required ones."""
    once: bool = False
    """Whether most values occur once."""
    nulls: float = 0.0
    """Share of values that are missing."""


KINDS = (
    DatabaseKind((5, 10), (3, 6, 9, 40)),
    DatabaseKind((8, 12), (40,), once=True),
    DatabaseKind((18, 24), (3, 6, 9)),
    DatabaseKind((8, 14), (3, 9, 40), nulls=0.12),
)
"""The kinds of databases; each question has the same number of each."""


@dataclass
class RowMaker:
    """Generates the rows of one database."""

    tables: DatabaseSchema
    required: Mapping[int, Sequence[Value]]
    """Values that must be likely to occur, by column."""
    groups: Mapping[int, int]
    """Group number of columns that keys or joins link; columns of a group share values."""
    rng: Random
    kind: DatabaseKind = KINDS[0]
    values: dict[int, dict[int, list[Value]]] = field(default_factory=dict)
    """Generated values, by table and column."""

    def table_rows(self, table: int) -> Rows:
        """Return a table's rows, generated together with those of the tables it refers to."""
        self._make_table(table)
        columns = self.tables.table_columns(table)
        return list(zip(*(self.values[table][c.index] for c in columns), strict=True))

    def _make_table(self, table: int) -> None:
        if table in self.values:
            return
        self.values[table] = {}
        columns = self.tables.table_columns(table)
        parents = self._make_parents(columns)
        choices = {c.index: self._column_choices(c, parents.get(c.index, [])) for c in columns}
        keys = [c.index for c in columns if c.index in self.tables.primary]
        identity = list(itertools.product(*(choices[key] for key in keys))) if keys else []
        low, high = self.kind.rows
        count = self.rng.randint(low - 1, 2 * high - 2 if parents else high)
        if keys:
            identity = self._draw_keys(identity, count)
            count = len(identity)
        for column in columns:
            if column.index in keys:
                values = [row[keys.index(column.index)] for row in identity]
            else:
                values = self._draw_values(choices[column.index], count, column)
            self.values[table][column.index] = values

    def _draw_values(self, choices: list[Value], count: int, column: Column) -> list[Value]:
        """Draw a column's values; a foreign key's repeat in any kind."""
        key = column.index in self.tables.key_columns
        if self.kind.once and not key:
            some = self.rng.sample(choices, min(count, len(choices)))
            return [*some, *(self.rng.choice(choices) for _ in range(count - len(some)))]
        drawn = [self.rng.choice(choices) for _ in range(count)]
        if key or not self.kind.nulls:
            return drawn
        return [None if self.rng.random() < self.kind.nulls else value for value in drawn]

    def _draw_keys(self, identity: list[tuple[Value, ...]], count: int) -> list[tuple[Value, ...]]:
        """Draw distinct keys; early ones, which hold the required values, are likelier."""
        weighed = sorted(range(len(identity)), key=lambda i: self.rng.random() * (i + 3))
        chosen = [identity[i] for i in weighed[:count]]
        self.rng.shuffle(chosen)
        return chosen

    def _make_parents(self, columns: Iterable[Column]) -> dict[int, list[int]]:
        """Generate the tables referred to; return the columns that each column refers to."""
        referred: dict[int, list[int]] = {}
        for column in columns:
            for child, parent in self.tables.foreign:
                if child == column.index and parent != child:
                    self._make_table(self.tables.columns[parent].table)
                    referred.setdefault(child, []).append(parent)
        return referred

    def _column_choices(self, column: Column, parents: Iterable[int]) -> list[Value]:
        """Return the values that a column may take: those of its parents, or of a pool."""
        allowed: list[Value] | None = None
        for parent in parents:
            values = self.values[self.tables.columns[parent].table].get(parent)
            if values is not None:  # None only where keys form a circle
                allowed = [v for v in dict.fromkeys(values) if allowed is None or v in allowed]
        required = self._required_values(column)
        if allowed:
            return [
                *allowed,
                *(v for v in allowed if v in required and not self._is_primary(column)),
            ]
        pool = [
            value
            for value in dict.fromkeys(self._value_pool(column, required))
            if value not in required
        ]
        many = (
            self.rng.randint(10, 14)
            if self._is_primary(column)
            else self.rng.choice(self.kind.values)
        )
        return [*required, *self.rng.sample(pool, min(len(pool), many))]

    def _is_primary(self, column: Column) -> bool:
        """Return whether a column is (part of) a primary key."""
        return column.index in self.tables.primary

    def _value_pool(self, column: Column, required: Iterable[Value]) -> Iterator[Value]:
        """Yield values for a column that refers to no other: near misses, then any."""
        kind = self.tables.columns[self.groups.get(column.index, column.index)].kind
        for value in required:
            if isinstance(value, int | float):
                yield from (value - 1, value + 1, value * 2, value // 2, value + 7)
        if kind == "number":
            yield from range(1, 17 if column.index in self.tables.key_columns else 61)
        elif kind == "time":
            yield from (f"20{y:02}-{y % 12 + 1:02}-1{y % 9}" for y in range(8, 20))
        elif kind == "boolean":
            yield from (0, 1)
        else:
            yield from _WORDS

    def _required_values(self, column: Column) -> list[Value]:
        """Return the required values of a column and of those in its group."""
        group = self.groups.get(column.index)
        same = [c for c, g in self.groups.items() if g == group] if group else [column.index]
        values = (value for index in sorted(same) for value in self.required.get(index, ()))
        return list(dict.fromkeys(values))


def link_groups(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return a common number for columns that these pairs link, directly or through others."""
    group: dict[int, int] = {}
    for a, b in pairs:
        first, second = group.setdefault(a, a), group.setdefault(b, b)
        group = {c: min(first, second) if g in (first, second) else g for c, g in group.items()}
    return group


OF_A_KIND = 4
"""Databases of each kind for one question."""


@dataclass(frozen=True)
class ResultDigest:
    """A query's result on one database."""

    rows: int
    """Hash of its rows and how often each occurs."""
    order: int | None
    """Hash of its rows in order, or None if the query leaves the order open, even only among
    equals."""
    empty: bool

    def differs(self, other: ResultDigest) -> bool:
        """Return whether the results are certainly different: other rows, or another order."""
        if self.rows != other.rows:
            return True
        return None not in (self.order, other.order) and self.order != other.order


@dataclass(frozen=True)
class QueryResults:
    """A query's results on all databases of a question, by kind in turn."""

    results: tuple[ResultDigest | None, ...]

    @property
    def any_row(self) -> bool:
        """Return whether it gives a row on any database."""
        return any(result and not result.empty for result in self.results)

    def differs(self, other: QueryResults) -> bool:
        """Return whether databases of each kind distinguish the two queries."""
        apart = [
            a is not None and b is not None and a.differs(b)
            for a, b in zip(self.results, other.results, strict=True)
        ]
        return all(any(apart[kind :: len(KINDS)]) for kind in range(len(KINDS)))


_KINDS = {"number": "INT", "boolean": "INT", "text": "TEXT", "time": "TEXT"}
_TICKS, _STEP = 400, 1000
_MOST_ROWS = 2000


class QueryBench:
    """The databases of one question, each in two row orders."""

    def __init__(self, gold: Query, tables: DatabaseSchema, *, key: str, seed: int) -> None:
        used = {tables.table_numbers[t.name.lower()] for t in gold.tree.find_all(exp.Table)}
        linked = link_groups((*tables.foreign, *joined_columns([gold.tree])))
        self._pairs: list[tuple[sqlite3.Connection, sqlite3.Connection]] = []
        for number in range(OF_A_KIND * len(KINDS)):
            rng, kind = _seeded_random(seed, key, number), KINDS[number % len(KINDS)]
            maker = RowMaker(tables, compared_values([gold.tree]), linked, rng, kind)
            rows = {table: maker.table_rows(table) for table in sorted(used)}
            back = {table: list(reversed(table_rows)) for table, table_rows in rows.items()}
            self._pairs.append((_load_database(tables, rows), _load_database(tables, back)))

    def close(self) -> None:
        """Close the databases."""
        for connection in (c for pair in self._pairs for c in pair):
            connection.close()

    def run_query(self, query: Query) -> QueryResults:
        """Return the query's result on each database.

        The result is None if the query fails, takes too long, gives too many rows, or its rows
        depend on their order in the tables, as with `LIMIT 1` among equals.
        """
        ordered = bool(query.tree.args.get("order"))
        return QueryResults(
            tuple(_result_digest(pair, query.text, ordered) for pair in self._pairs)
        )


def _seeded_random(seed: int, key: str, number: int) -> Random:
    return Random(hashlib.sha256(f"cosql:{seed}:{key}:{number}".encode()).digest())


def _load_database(tables: DatabaseSchema, rows: Mapping[int, Rows]) -> sqlite3.Connection:
    """Return an in-memory database with these rows."""
    connection = sqlite3.connect(":memory:")
    for table, table_rows in rows.items():
        columns = tables.table_columns(table)
        name = _quote_name(tables.names[table])
        # INT, not INTEGER: that would make a primary key the row id, and so set the row order.
        kinds = (f"{_quote_name(c.name)} {_KINDS.get(c.kind, 'NUMERIC')}" for c in columns)
        connection.execute(f"CREATE TABLE {name} ({', '.join(kinds)})")
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", table_rows)  # noqa: S608
    return connection


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _result_digest(
    pair: Sequence[sqlite3.Connection], text: str, ordered: bool
) -> ResultDigest | None:
    """Return a query's result on a database given in two row orders, or None if it does not
    count."""
    first, second = (_run_query(connection, text) for connection in pair)
    if first is None or second is None or Counter(first) != Counter(second):
        return None
    certain = ordered and first == second
    first = _sort_columns(first)
    rows = hash(frozenset(Counter(first).items()))
    return ResultDigest(rows, hash(tuple(first)) if certain else None, not first)


def _run_query(connection: sqlite3.Connection, text: str) -> list[tuple[object, ...]] | None:
    """Return a query's rows, or None if it fails or does too much."""
    # Counts virtual machine steps, not seconds, so that every machine stops at the same point.
    ticks = iter(range(_TICKS))
    connection.set_progress_handler(lambda: next(ticks, None) is None, _STEP)
    try:
        rows = connection.execute(text).fetchmany(_MOST_ROWS)
    except (sqlite3.Error, OverflowError):
        return None
    return None if len(rows) == _MOST_ROWS else [tuple(map(_round_float, row)) for row in rows]


def _sort_columns(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return rows with their columns sorted by content, so that the order of the listed columns
    does not matter."""
    columns = sorted(zip(*rows, strict=True), key=lambda column: sorted(map(repr, column)))
    return list(zip(*columns, strict=True))


def _round_float(value: object) -> object:
    """Return a value rounded, so that equal numbers are equal."""
    return round(value, 6) if isinstance(value, float) else value
