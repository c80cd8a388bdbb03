"""The schema of a row's database, and its gold query in one canonical form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError


@dataclass(frozen=True)
class Column:
    """A column, by its position in the row's lists."""

    index: int
    table: int
    name: str
    kind: str
    """Type in the data: text, number, time, boolean or others."""


@dataclass(frozen=True)
class DatabaseSchema:
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
    def from_row(cls, row: Mapping[str, Any]) -> DatabaseSchema:
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
    def table_numbers(self) -> dict[str, int]:
        """Return table numbers by lower-case name, without SQLite's own tables, which some schemas
        list."""
        names = enumerate(name.lower() for name in self.names)
        return {name: number for number, name in names if not name.startswith("sqlite_")}

    @cached_property
    def key_columns(self) -> frozenset[int]:
        """Return the columns that take part in any key."""
        return self.primary | {column for pair in self.foreign for column in pair}

    def table_columns(self, table: int) -> list[Column]:
        """Return the columns of a table, in order."""
        return [column for column in self.columns if column.table == table]

    def find_column(self, table: int, name: str) -> Column | None:
        """Return a table's column by name, ignoring case, or None."""
        same = (
            column for column in self.table_columns(table) if column.name.lower() == name.lower()
        )
        return next(same, None)

    def column_label(self, column: int) -> str:
        """Return `table.column`."""
        entry = self.columns[column]
        return f"{self.names[entry.table]}.{entry.name}"


COLUMN = "column"
"""Key of a canonical column's metadata: its position in the schema."""

_SPLIT_OPERATOR = re.compile(r"([<>!])\s+=")


class BadQuery(ValueError):
    """A gold query that cannot be used; the text is the reason."""


@dataclass(frozen=True, eq=False)
class Query:
    """A query as a tree and as text."""

    tree: exp.Expression

    @cached_property
    def text(self) -> str:
        """Return the query's SQL. Gold and wrong queries are all formatted here."""
        return str(self.tree.sql(dialect="sqlite"))


def canonical_query(sql: str, tables: DatabaseSchema) -> Query:
    """Parse a gold query; write names as the schema does and texts in single quotes.

    Wrong queries take names from the schema, so the gold must write them alike not to stand out.
    Every column is marked with its position in the schema. Raises BadQuery if it cannot be used.
    """
    try:
        # The data has operators pulled apart, as in `count(*) > = 3`.
        tree = parse_one(_SPLIT_OPERATOR.sub(r"\1=", sql), dialect="sqlite")
    except SqlglotError as error:
        raise BadQuery("the gold query does not parse") from error
    if not isinstance(tree, exp.Query):
        raise BadQuery("the gold is not a query")
    _name_tables(tree, tables)
    for node in list(tree.find_all(exp.Column)):
        _name_column(node, tables)
    for ordered in tree.find_all(exp.Ordered):
        ordered.set("desc", True if ordered.args.get("desc") else None)
    return Query(tree)


def select_sources(select: exp.Expression | None) -> list[exp.Expression]:
    """Return what a SELECT reads, FROM and JOINs in order."""
    if select is None:
        return []
    parts = (select.args.get("from_"), *(select.args.get("joins") or ()))
    return [part.this for part in parts if part is not None]


def source_name(node: exp.Expression) -> str:
    """Return the alias or name of what a SELECT reads."""
    return str(node.alias_or_name)


def scope_tables(select: exp.Expression, tables: DatabaseSchema) -> Iterator[tuple[str, int]]:
    """Yield (alias or name, table number) of the tables that a SELECT itself reads."""
    for part in select_sources(select):
        number = (
            tables.table_numbers.get(part.name.lower()) if isinstance(part, exp.Table) else None
        )
        if number is not None:
            yield part.alias_or_name, number


def _name_tables(tree: exp.Expression, tables: DatabaseSchema) -> None:
    for table in tree.find_all(exp.Table):
        number = tables.table_numbers.get(table.name.lower())
        if number is None:
            raise BadQuery("the gold query reads a table that the schema lacks")
        alias = table.alias
        table.set("this", exp.to_identifier(tables.names[number]))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias.upper())) if alias else None)


def _name_column(node: exp.Column, tables: DatabaseSchema) -> None:
    if isinstance(node.this, exp.Star):
        return
    match = _resolve_column(node, tables)
    if match is not None:
        alias, column = match
        node.set("this", exp.to_identifier(column.name))
        node.set("table", exp.to_identifier(alias) if node.table else None)
        node.meta[COLUMN] = column.index
    elif node.this.args.get("quoted") and not node.table:
        # SQLite, and so the data, takes "text" in double quotes for a string.
        node.replace(exp.Literal.string(node.name))
    elif node.name.lower() not in {a.alias.lower() for a in node.root().find_all(exp.Alias)}:
        raise BadQuery("the gold query names a column that the schema lacks")


def _resolve_column(node: exp.Column, tables: DatabaseSchema) -> tuple[str, Column] | None:
    """Return the table alias and schema column that a reference means, innermost SELECT first, or
    None."""
    select = node.find_ancestor(exp.Select)
    while select is not None:
        for alias, number in scope_tables(select, tables):
            if node.table.lower() in ("", alias.lower()):
                column = tables.find_column(number, node.name)
                if column is not None:
                    return alias, column
        select = select.find_ancestor(exp.Select)
    return None
