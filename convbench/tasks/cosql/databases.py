"""Small random databases that honour a schema's types, primary and foreign keys.

They are made to tell queries apart: few rows, values that repeat, the values a query asks for
among them, and values next to those. No NULLs: queries that differ on NULLs alone would be
right answers to the same question.
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


@dataclass
class Maker:
    """Makes the rows of one database."""

    tables: Tables
    wanted: Mapping[int, Sequence[Value]]
    """Values by column that must be likely to occur."""
    groups: Mapping[int, int]
    """Columns that keys or joins link, and the number of their group: they share values."""
    rng: Random
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
        count = self.rng.randint(4, 18) if parents else self.rng.randint(5, 10)
        if keys:
            identity = self._sample(identity, count)
            count = len(identity)
        for column in columns:
            if column.index in keys:
                values = [row[keys.index(column.index)] for row in identity]
            else:
                values = [self.rng.choice(choices[column.index]) for _ in range(count)]
            self.made[table][column.index] = values

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
        many = self.rng.randint(10, 14) if self._key(column) else self.rng.choice((3, 6, 9, 40))
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
