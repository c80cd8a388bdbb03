"""A question with its right query, and what wrong queries take from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from convbench.tasks.cosql.builds import (
    QueryTemplate,
    compared_value,
    find_literals,
    find_selects,
    named_columns,
)
from convbench.tasks.cosql.queries import COLUMN, DatabaseSchema, Query, scope_tables
from convbench.tasks.cosql.shared import word_set


@dataclass(frozen=True, eq=False)
class GoldQuestion:
    """A question with its right query."""

    key: str
    text: str
    template: QueryTemplate
    tables: DatabaseSchema
    popular: Mapping[int, int]
    """How often right queries on the database name each column."""

    @property
    def gold_query(self) -> Query:
        """Return the right query."""
        return self.template.query

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the question's words."""
        return frozenset(word_set(self.text))

    @cached_property
    def scopes(self) -> list[list[tuple[str, int]]]:
        """Return the (alias, table) pairs that each SELECT reads."""
        return [list(scope_tables(s, self.tables)) for s in find_selects(self.gold_query.tree)]

    @cached_property
    def uses_alias(self) -> list[bool]:
        """Return for each SELECT whether its columns are written with their table's alias."""
        flags = [len(tables) > 1 for tables in self.scopes]
        for number, node in named_columns(self.gold_query.tree):
            flags[number] = bool(node.table)
        return flags

    @cached_property
    def query_words(self) -> frozenset[str]:
        """Return the words of the right query's names, tables, joins and values."""
        names = (node.name for _, node in named_columns(self.gold_query.tree))
        return self.shared_words | word_set(" ".join(names))

    @cached_property
    def compared_columns(self) -> dict[tuple[bool, str], int]:
        """Return the column that the right query compares with each value, by (is text, value)."""
        pairs = (
            (compared_value(node), node.meta.get(COLUMN))
            for _, node in named_columns(self.gold_query.tree)
        )
        return {(v.is_string, v.name): column for v, column in pairs if v and column is not None}

    @cached_property
    def shared_words(self) -> frozenset[str]:
        """Return the words that all options have: of tables, joins and values."""
        parts = [
            part.sql()
            for select in find_selects(self.gold_query.tree)
            for part in _table_sources(select)
        ]
        return frozenset(
            word_set(" ".join((*parts, *(v.name for v in find_literals(self.gold_query.tree)))))
        )


def _table_sources(select: exp.Expression) -> list[exp.Expression]:
    return [select.args["from_"], *(select.args.get("joins") or ())]
