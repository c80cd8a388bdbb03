"""One-place changes to a query, each a mistake that people make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from convbench.tasks.cosql.queries import NODE, Query, scope_tables
from convbench.tasks.cosql.tables import Column, Tables

Change = Callable[[exp.Expression], exp.Expression | None]
"""Returns the node to put in a node's place, None where it has changed the node itself."""

Found = Iterator[tuple[str, Change]]
"""Kinds of edits and their changes: what a module offers for one node."""


@dataclass(frozen=True)
class Edit:
    """A change of the node that carries a number."""

    kind: str
    """What is changed, e.g. column, comparison, limit."""
    node: int
    """Number of the node (`queries.NODE`)."""
    change: Change


def edited(gold: Query, edits: Iterable[Edit]) -> Query | None:
    """Return a copy of the gold with these edits, None where one removes another's place.

    A node that was put in another's place has no number, so that no edit finds it.
    """
    tree = gold.tree.copy()
    for edit in edits:
        found = next((n for n in tree.walk() if n.meta.get(NODE) == edit.node), None)
        if found is None:
            return None
        new = edit.change(found)
        if new is not None:
            tree = new if found is tree else tree
            found.replace(new)
    return Query(tree)


def readable(select: exp.Expression, tables: Tables) -> Iterator[tuple[str, Column]]:
    """Yield every column that a SELECT can name, with its table's alias."""
    for alias, table in scope_tables(select, tables):
        for column in tables.of_table(table):
            yield alias, column
