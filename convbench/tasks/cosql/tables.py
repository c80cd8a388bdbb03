"""The tables, columns and keys of a row's database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

ALL_COLUMNS = -1
"""Table number of the pseudo column `*`."""


@dataclass(frozen=True)
class Column:
    """A column, by its position in the row's lists."""

    index: int
    table: int
    name: str
    kind: str
    """Type as the data has it: text, number, time, boolean or others."""


@dataclass(frozen=True)
class Tables:
    """A database schema in the layout of the common CoSQL builder."""

    names: tuple[str, ...]
    """Table names."""
    columns: tuple[Column, ...]
    """All columns; position 0 is `*`."""
    primary: frozenset[int]
    """Columns that are primary keys, or part of one."""
    foreign: tuple[tuple[int, int], ...]
    """Foreign keys: (column, the column it refers to)."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Tables:
        """Return the schema that a row carries."""
        names, kinds = row["db_column_names"], row["db_column_types"]
        columns = zip(names["table_id"], names["column_name"], kinds, strict=True)
        keys = row["db_foreign_keys"]
        return cls(
            names=tuple(row["db_table_names"]),
            columns=tuple(Column(i, *column) for i, column in enumerate(columns)),
            primary=frozenset(row["db_primary_keys"]["column_id"]),
            foreign=tuple(
                dict.fromkeys(zip(keys["column_id"], keys["other_column_id"], strict=True))
            ),
        )

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Table numbers by lower-case name, without SQLite's own tables, which some list."""
        names = enumerate(name.lower() for name in self.names)
        return {name: number for number, name in names if not name.startswith("sqlite_")}

    @cached_property
    def keys(self) -> frozenset[int]:
        """Columns that take part in any key."""
        return self.primary | {column for pair in self.foreign for column in pair}

    def of_table(self, table: int) -> list[Column]:
        """Return the columns of a table, in order."""
        return [column for column in self.columns if column.table == table]

    def find(self, table: int, name: str) -> Column | None:
        """Return a table's column by name, whatever its case."""
        same = (column for column in self.of_table(table) if column.name.lower() == name.lower())
        return next(same, None)

    def label(self, column: int) -> str:
        """Return `table.column`."""
        found = self.columns[column]
        return f"{self.names[found.table]}.{found.name}"
