"""The gold query, parsed and brought into one canonical form, and the one formatter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from convbench.tasks.cosql.tables import Column, Tables

COLUMN, NODE = "column", "node"
"""Marks that canonical nodes carry: position of a schema column, number of the node."""

_SPLIT_OPERATOR = re.compile(r"([<>!])\s+=")


class BadQuery(ValueError):
    """A gold query that cannot be used; the text is the reason."""


@dataclass(frozen=True, eq=False)
class Query:
    """A query as a tree, and as the text that shows it."""

    tree: exp.Expression

    @cached_property
    def text(self) -> str:
        """The one formatter: gold and mutations all come through here."""
        return str(self.tree.sql(dialect="sqlite"))


def canonical(sql: str, tables: Tables) -> Query:
    """Parse a gold query; names as the schema writes them, text in single quotes.

    Mutations take names from the schema, so the gold must write them alike not to stand out.
    Every column is marked with its position in the schema.
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
    for number, node in enumerate(tree.walk()):
        node.meta[NODE] = number
    return Query(tree)


def scope_tables(select: exp.Expression, tables: Tables) -> Iterator[tuple[str, int]]:
    """Yield (alias or name, table number) of the tables that a SELECT itself reads."""
    from_ = select.args.get("from_") or select.args.get("from")
    for part in (from_, *(select.args.get("joins") or ())):
        if part is not None and isinstance(part.this, exp.Table):
            number = tables.numbers.get(part.this.name.lower())
            if number is not None:
                yield part.this.alias_or_name, number


def qualified(select: exp.Expression, alias: str, column: Column) -> exp.Column:
    """Return a new reference to a column, with its table where this SELECT reads several."""
    several = bool(select.args.get("joins"))
    node = exp.column(column.name, table=alias if several else None)
    node.meta[COLUMN] = column.index
    return node


def _name_tables(tree: exp.Expression, tables: Tables) -> None:
    for table in tree.find_all(exp.Table):
        number = tables.numbers.get(table.name.lower())
        if number is None:
            raise BadQuery("the gold query reads a table that the schema lacks")
        alias = table.alias
        table.set("this", exp.to_identifier(tables.names[number]))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias.upper())) if alias else None)


def _name_column(node: exp.Column, tables: Tables) -> None:
    if isinstance(node.this, exp.Star):
        return
    found = _resolve(node, tables)
    if found is not None:
        alias, column = found
        node.set("this", exp.to_identifier(column.name))
        node.set("table", exp.to_identifier(alias) if node.table else None)
        node.meta[COLUMN] = column.index
    elif node.this.args.get("quoted") and not node.table:
        # SQLite, and so the data, takes "text" in double quotes for a string.
        node.replace(exp.Literal.string(node.name))
    elif node.name.lower() not in {a.alias.lower() for a in node.root().find_all(exp.Alias)}:
        raise BadQuery("the gold query names a column that the schema lacks")


def _resolve(node: exp.Column, tables: Tables) -> tuple[str, Column] | None:
    """Return the table alias and schema column that a reference means, innermost SELECT first."""
    select = node.find_ancestor(exp.Select)
    while select is not None:
        for alias, number in scope_tables(select, tables):
            if node.table.lower() in ("", alias.lower()):
                column = tables.find(number, node.name)
                if column is not None:
                    return alias, column
        select = select.find_ancestor(exp.Select)
    return None
