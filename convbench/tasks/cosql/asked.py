"""A question with its right query, and what wrong queries take from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from convbench.tasks.cosql.builds import Build, columns, compared, literals, selects
from convbench.tasks.cosql.queries import COLUMN, Query, Tables, scope_tables
from convbench.tasks.cosql.shared import words


@dataclass(frozen=True, eq=False)
class Asked:
    """A question with its right query."""

    key: str
    text: str
    build: Build
    tables: Tables
    popular: Mapping[int, int]
    """How often right queries on the database name each column."""

    @property
    def gold(self) -> Query:
        """Return the right query."""
        return self.build.query

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the question's words."""
        return frozenset(words(self.text))

    @cached_property
    def scopes(self) -> list[list[tuple[str, int]]]:
        """Return the (alias, table) pairs that each SELECT reads."""
        return [list(scope_tables(s, self.tables)) for s in selects(self.gold.tree)]

    @cached_property
    def qualified(self) -> list[bool]:
        """Return for each SELECT whether its columns are written with their table's alias."""
        found = [len(tables) > 1 for tables in self.scopes]
        for number, node in columns(self.gold.tree):
            found[number] = bool(node.table)
        return found

    @cached_property
    def named(self) -> frozenset[str]:
        """Return the words of the right query's names, tables, joins and values."""
        names = (node.name for _, node in columns(self.gold.tree))
        return self.fixed | words(" ".join(names))

    @cached_property
    def beside(self) -> dict[tuple[bool, str], int]:
        """Return the column that the right query compares with each value, by (is text, value)."""
        pairs = ((compared(node), node.meta.get(COLUMN)) for _, node in columns(self.gold.tree))
        return {(v.is_string, v.name): column for v, column in pairs if v and column is not None}

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Return the words that all options have: of tables, joins and values."""
        parts = [part.sql() for select in selects(self.gold.tree) for part in _reads(select)]
        return frozenset(words(" ".join((*parts, *(v.name for v in literals(self.gold.tree))))))


def _reads(select: exp.Expression) -> list[exp.Expression]:
    return [select.args["from_"], *(select.args.get("joins") or ())]
