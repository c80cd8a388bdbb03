"""A query's phrases: what follows what in it, where columns go by their sort."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from convbench.tasks.cosql.builds import columns, selects, sort
from convbench.tasks.cosql.looks import pairs
from convbench.tasks.cosql.queries import COLUMN, Query
from convbench.tasks.cosql.tables import Tables


def phrases(query: Query, tables: Tables) -> Counter[str]:
    """Return the words and pairs of words of a query, with its columns' sorts for their names."""
    tree = query.tree.copy()
    for _, node in columns(tree):
        if COLUMN in node.meta:
            node.set("this", exp.to_identifier(_sort(node.meta[COLUMN], tables)))
    for node in tree.find_all(exp.Literal):
        node.set("this", "0")
    for select in selects(tree):
        select.set("from_", exp.From(this=exp.to_table("x")))
        select.set("joins", None)
    return pairs(str(tree.sql(dialect="sqlite")))


def _sort(column: int, tables: Tables) -> str:
    key, kind, name = sort(column, tables)
    return "name" if name else "key" if key else "size" if kind == "number" else "text"
