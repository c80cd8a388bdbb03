"""The build of a query: all of it that has no name and no value, with slots for what has, and its
phrases.
"""

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


Shape = tuple[tuple[int, ...], int, int]
"""How many tables each SELECT reads; how many texts and how many numbers a query has."""

Sort = tuple[bool, str, bool]
"""Whether a column is part of a key, its type, and whether it is called a name."""

_COMPARED = (exp.Binary, exp.Between, exp.In)
_ORDERED = (exp.GT, exp.LT, exp.GTE, exp.LTE, exp.Max, exp.Min)


@dataclass(frozen=True)
class Slot:
    """A place where a build names a column."""

    select: int
    """Which SELECT it belongs to, outer ones first."""
    name: str
    """Same for places of one SELECT that name the same column."""
    table: int | None
    """Which of the SELECT's tables the column is of; None for any."""
    value: int | None
    """Which value it is compared with: `literals`, texts first."""
    kinds: tuple[str, ...]
    """Types of column that make sense there; empty for any."""
    sort: Sort | None
    """What sort of column it names; None for what a SELECT makes."""
    like: tuple[int, str] | None
    """The first place (select, name) of another SELECT whose column is linked with this one's."""


@dataclass(frozen=True, eq=False)
class Build:
    """A right query, taken as a pattern."""

    query: Query
    slots: tuple[Slot, ...]
    shape: Shape
    form: str
    """Its text without names and values, tables and joins."""
    words: frozenset[str]
    """Words of its keywords."""

    @classmethod
    def of(cls, query: Query, schema: Tables) -> Build:
        """Return the build of a query on a database."""
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
    """Yield (number of its SELECT, column) of all named columns outside FROM and JOIN."""
    found = selects(tree)
    for node in tree.find_all(exp.Column):
        select = node.find_ancestor(exp.Select)
        joined = node.find_ancestor(exp.Join, exp.Select)
        if select is not None and joined is select and not isinstance(node.this, exp.Star):
            yield next(i for i, one in enumerate(found) if one is select), node


def literals(tree: exp.Expression) -> list[exp.Literal]:
    """Return the texts, then the numbers of a query. `LIMIT 1` is a keyword, no number."""
    found = [
        node
        for node in tree.find_all(exp.Literal)
        if node.name != "1" or not isinstance(node.parent, exp.Limit)
    ]
    return sorted(found, key=lambda node: not node.is_string)


def compared(node: exp.Column) -> exp.Literal | None:
    """Return the value that a column is compared with."""
    if not isinstance(node.parent, _COMPARED):
        return None
    return next((v for v in node.parent.iter_expressions() if isinstance(v, exp.Literal)), None)


def sort(column: int, tables: Tables) -> Sort:
    """Return what sort of column it is, by its position in the schema."""
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
    """Return the first place of another SELECT whose column is linked with this one."""
    others = ((place, other) for place, other in before.items() if place[0] != select)
    return next((place for place, other in others if linked(column, other, tables)), None)


def _kinds(node: exp.Column) -> tuple[str, ...]:
    if isinstance(node.parent, exp.Avg | exp.Sum):
        return ("number",)
    return ("number", "time") if isinstance(node.parent, _ORDERED) else ()


def _form(query: Query) -> str:
    """Return what any query of this build has: the names and values are dropped."""
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
