"""Query templates: a query without its names and values, with slots for them, and its phrases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from convbench.tasks.cosql.queries import COLUMN, DatabaseSchema, Query, select_sources, source_name
from convbench.tasks.cosql.surface_features import token_pairs, word_set


def query_phrases(query: Query, tables: DatabaseSchema) -> Counter[str]:
    """Return the counts of a query's words and pairs of words, with sorts in place of column
    names."""
    tree = query.tree.copy()
    for _, node in named_columns(tree):
        if COLUMN in node.meta:
            node.set("this", exp.to_identifier(_sort_name(node.meta[COLUMN], tables)))
    for node in tree.find_all(exp.Literal):
        node.set("this", "0")
    for select in find_selects(tree):
        select.set("from_", exp.From(this=exp.to_table("x")))
        select.set("joins", None)
    return token_pairs(str(tree.sql(dialect="sqlite")))


def _sort_name(column: int, tables: DatabaseSchema) -> str:
    key, kind, name = column_sort(column, tables)
    return "name" if name else "key" if key else "size" if kind == "number" else "text"


Shape = tuple[tuple[int, ...], int, int]
"""Number of tables that each SELECT reads; numbers of texts and of numbers in a query."""

Sort = tuple[bool, str, bool]
"""Whether a column is part of a key, its type, and whether it is called a name."""

_COMPARED = (exp.Binary, exp.Between, exp.In)
_ORDERED = (exp.GT, exp.LT, exp.GTE, exp.LTE, exp.Max, exp.Min)


@dataclass(frozen=True)
class ColumnSlot:
    """A position where a template names a column."""

    select: int
    """Number of its SELECT, outer ones first."""
    name: str
    """Equal for slots of one SELECT that name the same column."""
    table: int | None
    """Number of the SELECT's table that the column belongs to; None for any."""
    value: int | None
    """Number of the value that it is compared with (texts first); None for none."""
    kinds: tuple[str, ...]
    """Types of column that make sense here; empty for any."""
    sort: Sort | None
    """Sort of the column it names; None for one that a SELECT computes."""
    like: tuple[int, str] | None
    """The first slot (select, name) of another SELECT whose column is linked with this one's."""


@dataclass(frozen=True, eq=False)
class QueryTemplate:
    """A right query used as a template."""

    query: Query
    slots: tuple[ColumnSlot, ...]
    shape: Shape
    form: str
    """Its text without names, values, tables and joins."""
    words: frozenset[str]
    """Words of its keywords."""

    @classmethod
    def from_query(cls, query: Query, schema: DatabaseSchema) -> QueryTemplate:
        """Return the template of a query on a database."""
        values = find_literals(query.tree)
        texts = sum(literal.is_string for literal in values)
        tables = tuple(len(select_sources(select)) for select in find_selects(query.tree))
        slots = tuple(_column_slots(query, values, schema))
        form = _query_form(query)
        shape = (tables, texts, len(values) - texts)
        return cls(query, slots, shape, form, frozenset(word_set(form) - {"x", "0"}))


def find_selects(tree: exp.Expression) -> list[exp.Expression]:
    """Return the SELECTs of a query, outer ones first."""
    return list(tree.find_all(exp.Select))


def named_columns(tree: exp.Expression) -> Iterator[tuple[int, exp.Column]]:
    """Yield (number of its SELECT, column) for all named columns outside FROM and JOIN."""
    select_nodes = find_selects(tree)
    for node in tree.find_all(exp.Column):
        select = node.find_ancestor(exp.Select)
        joined = node.find_ancestor(exp.Join, exp.Select)
        if select is not None and joined is select and not isinstance(node.this, exp.Star):
            yield next(i for i, other in enumerate(select_nodes) if other is select), node


def find_literals(tree: exp.Expression) -> list[exp.Literal]:
    """Return the texts, then the numbers of a query. The 1 of `LIMIT 1` counts as a keyword."""
    nodes = [
        node
        for node in tree.find_all(exp.Literal)
        if node.name != "1" or not isinstance(node.parent, exp.Limit)
    ]
    return sorted(nodes, key=lambda node: not node.is_string)


def compared_value(node: exp.Column) -> exp.Literal | None:
    """Return the value that a column is compared with, or None."""
    if not isinstance(node.parent, _COMPARED):
        return None
    return next((v for v in node.parent.iter_expressions() if isinstance(v, exp.Literal)), None)


def column_sort(column: int, tables: DatabaseSchema) -> Sort:
    """Return (whether a column is part of a key, its type, whether it is called a name).

    `column` is its position in the schema.
    """
    entry = tables.columns[column]
    return column in tables.key_columns, entry.kind, _is_name(entry.name)


def are_linked(first: int, second: int, tables: DatabaseSchema) -> bool:
    """Return whether two columns are the same, of the same name, or linked by a foreign key."""
    names = {tables.columns[column].name.lower() for column in (first, second)}
    return len(names) == 1 or bool({(first, second), (second, first)} & {*tables.foreign})


@lru_cache(10_000)
def _is_name(column: str) -> bool:
    return "name" in word_set(column)


def _column_slots(
    query: Query, values: list[exp.Literal], schema: DatabaseSchema
) -> Iterator[ColumnSlot]:
    before: dict[tuple[int, str], int] = {}
    for number, node in named_columns(query.tree):
        tables = [
            name.lower()
            for name in map(source_name, select_sources(node.find_ancestor(exp.Select)))
        ]
        value, column = compared_value(node), node.meta.get(COLUMN)
        name = f"{node.table}.{node.name}".lower()
        yield ColumnSlot(
            select=number,
            name=name,
            table=tables.index(node.table.lower()) if node.table.lower() in tables else None,
            value=next((i for i, literal in enumerate(values) if literal is value), None),
            kinds=_column_kinds(node),
            sort=None if column is None else column_sort(column, schema),
            like=None if column is None else _linked_slot(number, column, before, schema),
        )
        if column is not None:
            before.setdefault((number, name), column)


def _linked_slot(
    select: int, column: int, before: dict[tuple[int, str], int], tables: DatabaseSchema
) -> tuple[int, str] | None:
    """Return the first slot of another SELECT whose column is linked with this one, or None."""
    others = ((slot_key, other) for slot_key, other in before.items() if slot_key[0] != select)
    return next((slot_key for slot_key, other in others if are_linked(column, other, tables)), None)


def _column_kinds(node: exp.Column) -> tuple[str, ...]:
    if isinstance(node.parent, exp.Avg | exp.Sum):
        return ("number",)
    return ("number", "time") if isinstance(node.parent, _ORDERED) else ()


def _query_form(query: Query) -> str:
    """Return the query's text without names, values, tables and joins."""
    tree = query.tree.copy()
    for node in list(tree.find_all(exp.Literal)):
        node.set("this", "0")
    for _, column in named_columns(tree):
        column.set("this", exp.to_identifier("x"))
        column.set("table", None)
    for select in find_selects(tree):
        for part in ("from_", "joins"):
            select.set(part, None)
    return str(tree.sql(dialect="sqlite"))
