"""Small random databases that honour a schema's types, primary and foreign keys.

They hold the values a query asks for and values next to those, and are of several kinds, as real
ones are: values that repeat, values of which most come once, more rows with many ties, and NULLs.
Queries must differ on each kind: what differs on NULLs or on repeated values alone would be a
right answer to the same question, to most who ask it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from convbench.tasks.cosql.hints import Value
from convbench.tasks.cosql.tables import Column, Tables

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
class Kind:
    """What the columns that are no key look like."""

    rows: tuple[int, int]
    """Rows of a table that refers to no other, least and most."""
    values: tuple[int, ...]
    """How many values a column takes besides the ones asked for."""
    once: bool = False
    """Whether most values come once."""
    nulls: float = 0.0
    """Share of values that are missing."""


KINDS = (
    Kind((5, 10), (3, 6, 9, 40)),
    Kind((8, 12), (40,), once=True),
    Kind((18, 24), (3, 6, 9)),
    Kind((8, 14), (3, 9, 40), nulls=0.12),
)
"""The kinds of databases; a question has as many of each."""


@dataclass
class Maker:
    """Makes the rows of one database."""

    tables: Tables
    wanted: Mapping[int, Sequence[Value]]
    """Values by column that must be likely to occur."""
    groups: Mapping[int, int]
    """Columns that keys or joins link, and the number of their group: they share values."""
    rng: Random
    kind: Kind = KINDS[0]
    made: dict[int, dict[int, list[Value]]] = field(default_factory=dict)
    """Values by table and column."""

    def rows(self, table: int) -> Rows:
        """Return a table's rows, made together with those it refers to."""
        self._make(table)
        columns = self.tables.of_table(table)
        return list(zip(*(self.made[table][c.index] for c in columns), strict=True))

    def _make(self, table: int) -> None:
        if table in self.made:
            return
        self.made[table] = {}
        columns = self.tables.of_table(table)
        parents = self._parents(columns)
        choices = {c.index: self._choices(c, parents.get(c.index, [])) for c in columns}
        keys = [c.index for c in columns if c.index in self.tables.primary]
        identity = list(itertools.product(*(choices[key] for key in keys))) if keys else []
        low, high = self.kind.rows
        count = self.rng.randint(low - 1, 2 * high - 2 if parents else high)
        if keys:
            identity = self._sample(identity, count)
            count = len(identity)
        for column in columns:
            if column.index in keys:
                values = [row[keys.index(column.index)] for row in identity]
            else:
                values = self._values(choices[column.index], count, column)
            self.made[table][column.index] = values

    def _values(self, choices: list[Value], count: int, column: Column) -> list[Value]:
        """Draw a column's values; a key's that refers to another table repeat in any kind."""
        key = column.index in self.tables.keys
        if self.kind.once and not key:
            some = self.rng.sample(choices, min(count, len(choices)))
            return [*some, *(self.rng.choice(choices) for _ in range(count - len(some)))]
        drawn = [self.rng.choice(choices) for _ in range(count)]
        if key or not self.kind.nulls:
            return drawn
        return [None if self.rng.random() < self.kind.nulls else value for value in drawn]

    def _sample(self, identity: list[tuple[Value, ...]], count: int) -> list[tuple[Value, ...]]:
        """Draw distinct keys; early ones, where the wanted values are, are likelier."""
        weighed = sorted(range(len(identity)), key=lambda i: self.rng.random() * (i + 3))
        chosen = [identity[i] for i in weighed[:count]]
        self.rng.shuffle(chosen)
        return chosen

    def _parents(self, columns: Iterable[Column]) -> dict[int, list[int]]:
        """Make the tables referred to; return the columns that each column refers to."""
        found: dict[int, list[int]] = {}
        for column in columns:
            for child, parent in self.tables.foreign:
                if child == column.index and parent != child:
                    self._make(self.tables.columns[parent].table)
                    found.setdefault(child, []).append(parent)
        return found

    def _choices(self, column: Column, parents: Iterable[int]) -> list[Value]:
        """Return the values a column may take: those of its parents, or of a pool."""
        allowed: list[Value] | None = None
        for parent in parents:
            values = self.made[self.tables.columns[parent].table].get(parent)
            if values is not None:  # None only where keys form a circle
                allowed = [v for v in dict.fromkeys(values) if allowed is None or v in allowed]
        asked = self._asked(column)
        if allowed:
            return [*allowed, *(v for v in allowed if v in asked and not self._key(column))]
        pool = [value for value in dict.fromkeys(self._pool(column, asked)) if value not in asked]
        many = self.rng.randint(10, 14) if self._key(column) else self.rng.choice(self.kind.values)
        return [*asked, *self.rng.sample(pool, min(len(pool), many))]

    def _key(self, column: Column) -> bool:
        """Return whether a column is (part of) a primary key."""
        return column.index in self.tables.primary

    def _pool(self, column: Column, asked: Iterable[Value]) -> Iterator[Value]:
        """Yield values for a column that refers to no other: near misses, then any."""
        kind = self.tables.columns[self.groups.get(column.index, column.index)].kind
        for value in asked:
            if isinstance(value, int | float):
                yield from (value - 1, value + 1, value * 2, value // 2, value + 7)
        if kind == "number":
            yield from range(1, 17 if column.index in self.tables.keys else 61)
        elif kind == "time":
            yield from (f"20{y:02}-{y % 12 + 1:02}-1{y % 9}" for y in range(8, 20))
        elif kind == "boolean":
            yield from (0, 1)
        else:
            yield from _WORDS

    def _asked(self, column: Column) -> list[Value]:
        """Return the wanted values of a column and of those in its group."""
        group = self.groups.get(column.index)
        same = [c for c, g in self.groups.items() if g == group] if group else [column.index]
        found = (value for index in sorted(same) for value in self.wanted.get(index, ()))
        return list(dict.fromkeys(found))


def groups(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return a common number for columns that these pairs link, directly or through others."""
    group: dict[int, int] = {}
    for a, b in pairs:
        first, second = group.setdefault(a, a), group.setdefault(b, b)
        group = {c: min(first, second) if g in (first, second) else g for c, g in group.items()}
    return group
