"""Edits that put another word in the place of one: a column, an aggregate, an operator."""

from __future__ import annotations

from sqlglot import exp

from convbench.tasks.cosql.edits import Change, Found, readable
from convbench.tasks.cosql.queries import COLUMN, qualified
from convbench.tasks.cosql.tables import Column, Tables

_AGGREGATES: tuple[type[exp.AggFunc], ...] = (exp.Avg, exp.Sum, exp.Min, exp.Max)
_ORDERINGS: tuple[type[exp.Binary], ...] = (exp.GT, exp.GTE, exp.LT, exp.LTE)
_SETS: tuple[type[exp.SetOperation], ...] = (exp.Union, exp.Intersect, exp.Except)


def columns(node: exp.Expression, tables: Tables) -> Found:
    """Another column of the same table and type; another key where tables are joined."""
    if not isinstance(node, exp.Column) or COLUMN not in node.meta:
        return
    own = tables.columns[node.meta[COLUMN]]
    in_join = isinstance(node.find_ancestor(exp.Join, exp.Select), exp.Join)
    for other in tables.of_table(own.table):
        if other != own and other.kind == own.kind:
            if not in_join:
                yield "column", _rename(other)
            elif other.index in tables.keys:
                yield "join", _rename(other)


def aggregates(node: exp.Expression, tables: Tables) -> Found:
    """Another aggregate; values counted once; one column's values counted, not the rows."""
    if isinstance(node, _AGGREGATES) and isinstance(node.this, exp.Column):
        yield from (("aggregate", _other(kind)) for kind in _AGGREGATES if type(node) is not kind)
    if not isinstance(node, exp.Count):
        return
    if isinstance(node.this, exp.Distinct):
        yield "distinct", lambda n: exp.Count(this=n.this.expressions[0].copy())
        yield "count", lambda n: exp.Count(this=exp.Star())
        return
    select = node.find_ancestor(exp.Select)
    for alias, column in readable(select, tables) if select is not None else ():
        if column.index not in tables.primary:
            yield "count", _count_values(alias, column)


def operators(node: exp.Expression, tables: Tables) -> Found:
    """Another comparison, AND for OR, with or without NOT, another set operation."""
    if isinstance(node, _ORDERINGS):
        yield from (("comparison", _other(kind)) for kind in _ORDERINGS if type(node) is not kind)
    elif isinstance(node, exp.EQ | exp.NEQ):
        if isinstance(node.find_ancestor(exp.Join, exp.Select), exp.Select):
            yield "equality", _other(exp.NEQ if isinstance(node, exp.EQ) else exp.EQ)
    elif isinstance(node, exp.And | exp.Or):
        yield "connective", _other(exp.Or if isinstance(node, exp.And) else exp.And)
    elif isinstance(node, exp.Not):
        yield "negation", lambda n: n.this.copy()
    elif isinstance(node, exp.In | exp.Like) and not isinstance(node.parent, exp.Not):
        yield "negation", lambda n: exp.Not(this=n.copy())
    elif isinstance(node, _SETS):
        yield from (("set operation", _other(kind)) for kind in _SETS if type(node) is not kind)


def literals(node: exp.Expression, tables: Tables) -> Found:
    """A number next to the one asked for."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        value = int(node.name)
        for other in {value + 1, value - 1, value * 2, value + 10} - {value}:
            if other >= 1:
                yield "literal", _number(other)


def tables_read(node: exp.Expression, tables: Tables) -> Found:
    """Another table, where a query reads one and the other has all the columns it names."""
    if not isinstance(node, exp.Table) or not isinstance(node.root(), exp.Select):
        return
    if len(list(node.root().find_all(exp.Table))) > 1 or node.alias:
        return
    names = [column.name for column in node.root().find_all(exp.Column)]
    for table, number in tables.numbers.items():
        if table != node.name.lower() and all(tables.find(number, name) for name in names):
            yield "table", _table(tables.names[number])


def _table(name: str) -> Change:
    return lambda node: exp.to_table(name)


def _rename(column: Column) -> Change:
    def change(node: exp.Expression) -> None:
        # The SELECT list and GROUP BY change together: else it would be two mistakes in one.
        select = node.find_ancestor(exp.Select)
        listed = node.parent is select or isinstance(node.parent, exp.Group)
        for mention in _mentions(select, node) if select is not None and listed else [node]:
            mention.set("this", exp.to_identifier(column.name))
            mention.meta[COLUMN] = column.index

    return change


def _mentions(select: exp.Expression, node: exp.Expression) -> list[exp.Expression]:
    """Return a column's mentions in the SELECT list and GROUP BY."""
    group = select.args.get("group")
    listed = [*select.expressions, *(group.expressions if group else ())]
    return [mention for mention in listed if mention == node]


def _other(kind: type[exp.Expression]) -> Change:
    """Return a change to another kind of node with the same arguments."""

    def change(node: exp.Expression) -> exp.Expression:
        copied = node.copy()
        return kind(**{name: value for name, value in copied.args.items() if value is not None})

    return change


def _count_values(alias: str, column: Column) -> Change:
    def change(node: exp.Expression) -> exp.Expression:
        select = node.find_ancestor(exp.Select)
        assert select is not None, "an aggregate lies in a SELECT"
        named = qualified(select, alias, column)
        return exp.Count(this=exp.Distinct(expressions=[named]))

    return change


def _number(value: int) -> Change:
    return lambda node: exp.Literal.number(value)
