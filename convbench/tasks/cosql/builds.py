"""Query templates: a query without its names and values, with slots for them, and its phrases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from convbench.tasks.cosql.looks import pairs
from convbench.tasks.cosql.queries import COLUMN, Query, Tables, source, sources
from convbench.tasks.cosql.shared import words


def phrases(query: Query, tables: Tables) -> Counter[str]:
    """Return the counts of a query's words and pairs of words, with sorts in place of column
    names."""
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


Shape = tuple[tuple[int, ...], int, int]
"""Number of tables that each SELECT reads; numbers of texts and of numbers in a query."""

Sort = tuple[bool, str, bool]
"""Whether a column is part of a key, its type, and whether it is called a name."""

_COMPARED = (exp.Binary, exp.Between, exp.In)
_ORDERED = (exp.GT, exp.LT, exp.GTE, exp.LTE, exp.Max, exp.Min)


@dataclass(frozen=True)
class Slot:
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
class Build:
    """A right query used as a template."""

    query: Query
    slots: tuple[Slot, ...]
    shape: Shape
    form: str
    """Its text without names, values, tables and joins."""
    words: frozenset[str]
    """Words of its keywords."""

    @classmethod
    def of(cls, query: Query, schema: Tables) -> Build:
        """Return the template of a query on a database."""
        values = literals(query.tree)
        texts = sum(literal.is_string for literal in values)
        tables = tuple(len(sources(select)) for select in selects(query.tree))
        slots = tuple(_slots(query, values, schema))
        form = _form(query)
        shape = (tables, texts, len(values) - texts)
        return cls(query, slots, shape, form, frozenset(words(form) - {"x", "0"}))


def selects(tree: exp.Expression) -> list[exp.Expression]:
    """Return the SELECTs of a query, outer ones first."""
    return list(tree.find_all(exp.Select))


def columns(tree: exp.Expression) -> Iterator[tuple[int, exp.Column]]:
    """Yield (number of its SELECT, column) for all named columns outside FROM and JOIN."""
    found = selects(tree)
    for node in tree.find_all(exp.Column):
        select = node.find_ancestor(exp.Select)
        joined = node.find_ancestor(exp.Join, exp.Select)
        if select is not None and joined is select and not isinstance(node.this, exp.Star):
            yield next(i for i, one in enumerate(found) if one is select), node


def literals(tree: exp.Expression) -> list[exp.Literal]:
    """Return the texts, then the numbers of a query. The 1 of `LIMIT 1` counts as a keyword."""
    found = [
        node
        for node in tree.find_all(exp.Literal)
        if node.name != "1" or not isinstance(node.parent, exp.Limit)
    ]
    return sorted(found, key=lambda node: not node.is_string)


def compared(node: exp.Column) -> exp.Literal | None:
    """Return the value that a column is compared with, or None."""
    if not isinstance(node.parent, _COMPARED):
        return None
    return next((v for v in node.parent.iter_expressions() if isinstance(v, exp.Literal)), None)


def sort(column: int, tables: Tables) -> Sort:
    """Return the sort of a column, given its position in the schema."""
    found = tables.columns[column]
    return column in tables.keys, found.kind, _is_name(found.name)


def linked(first: int, second: int, tables: Tables) -> bool:
    """Return whether two columns are the same, of the same name, or linked by a foreign key."""
    names = {tables.columns[column].name.lower() for column in (first, second)}
    return len(names) == 1 or bool({(first, second), (second, first)} & {*tables.foreign})


@lru_cache(10_000)
def _is_name(column: str) -> bool:
    return "name" in words(column)


def _slots(query: Query, values: list[exp.Literal], schema: Tables) -> Iterator[Slot]:
    before: dict[tuple[int, str], int] = {}
    for number, node in columns(query.tree):
        tables = [name.lower() for name in map(source, sources(node.find_ancestor(exp.Select)))]
        value, column = compared(node), node.meta.get(COLUMN)
        name = f"{node.table}.{node.name}".lower()
        yield Slot(
            select=number,
            name=name,
            table=tables.index(node.table.lower()) if node.table.lower() in tables else None,
            value=next((i for i, one in enumerate(values) if one is value), None),
            kinds=_kinds(node),
            sort=None if column is None else sort(column, schema),
            like=None if column is None else _like(number, column, before, schema),
        )
        if column is not None:
            before.setdefault((number, name), column)


def _like(
    select: int, column: int, before: dict[tuple[int, str], int], tables: Tables
) -> tuple[int, str] | None:
    """Return the first slot of another SELECT whose column is linked with this one, or None."""
    others = ((place, other) for place, other in before.items() if place[0] != select)
    return next((place for place, other in others if linked(column, other, tables)), None)


def _kinds(node: exp.Column) -> tuple[str, ...]:
    if isinstance(node.parent, exp.Avg | exp.Sum):
        return ("number",)
    return ("number", "time") if isinstance(node.parent, _ORDERED) else ()


def _form(query: Query) -> str:
    """Return the query's text without names, values, tables and joins."""
    tree = query.tree.copy()
    for node in list(tree.find_all(exp.Literal)):
        node.set("this", "0")
    for _, column in columns(tree):
        column.set("this", exp.to_identifier("x"))
        column.set("table", None)
    for select in selects(tree):
        for part in ("from_", "joins"):
            select.set(part, None)
    return str(tree.sql(dialect="sqlite"))
