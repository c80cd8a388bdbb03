"""Edits that add a part to a query, take one away, or turn an order round."""

from __future__ import annotations

from sqlglot import exp

from convbench.tasks.cosql.edits import Change, Found, readable
from convbench.tasks.cosql.queries import qualified
from convbench.tasks.cosql.tables import Column, Tables


def distinct(node: exp.Expression, tables: Tables) -> Found:
    """DISTINCT added or forgotten."""
    if isinstance(node, exp.Select):
        if node.args.get("distinct"):
            yield "distinct", _without("distinct")
        else:
            yield "distinct", lambda n: _put(n, "distinct", exp.Distinct())


def listed(node: exp.Expression, tables: Tables) -> Found:
    """A column too many or one forgotten in the outermost SELECT list."""
    if not isinstance(node, exp.Select) or node.parent is not None:
        return
    for number, _ in enumerate(node.expressions if len(node.expressions) > 1 else ()):
        yield "list", _unlisted(number)
    names = {item.name for item in node.expressions}
    for alias, column in readable(node, tables):
        if column.name not in names and not node.is_star:
            yield "list", _listed(alias, column)


def ordering(node: exp.Expression, tables: Tables) -> Found:
    """Ascending for descending, another LIMIT, one too many, or none."""
    if isinstance(node, exp.Ordered):
        yield "order", _turn_round
    if not isinstance(node, exp.Select):
        return
    if node.args.get("limit"):
        yield "limit", _without("limit")
    elif node.args.get("order"):
        yield "limit", _limit(1)
    if not node.args.get("order") and node.parent is None and not node.args.get("group"):
        for alias, column in readable(node, tables):
            if column.kind in ("number", "time") and column.index not in tables.keys:
                yield "limit", _first(alias, column)


def conditions(node: exp.Expression, tables: Tables) -> Found:
    """A condition forgotten, or a whole WHERE, GROUP BY or HAVING."""
    if isinstance(node, exp.And | exp.Or):
        yield "condition", lambda n: n.this.copy()
        yield "condition", lambda n: n.expression.copy()
    if isinstance(node, exp.Select):
        for part in ("where", "having"):
            if node.args.get(part):
                yield "condition", _without(part)
        if node.args.get("group") and not node.args.get("having"):
            yield "condition", _without("group")


def joins(node: exp.Expression, tables: Tables) -> Found:
    """An outer join for an inner one."""
    if isinstance(node, exp.Join) and not node.side and node.args.get("on"):
        yield "outer join", lambda n: _put(n, "side", "LEFT")


def _put(node: exp.Expression, part: str, value: object) -> None:
    node.set(part, value)


def _without(part: str) -> Change:
    return lambda node: _put(node, part, None)


def _turn_round(node: exp.Expression) -> None:
    descending = not node.args.get("desc")
    node.set("desc", True if descending else None)
    node.set("nulls_first", not descending)


def _limit(count: int) -> Change:
    def change(node: exp.Expression) -> None:
        node.set("limit", exp.Limit(expression=exp.Literal.number(count)))

    return change


def _first(alias: str, column: Column) -> Change:
    """Only the row with the smallest value, which was not asked for."""

    def change(node: exp.Expression) -> None:
        # Said outright, since the formatter would write out any other place of NULLs.
        ordered = exp.Ordered(this=qualified(node, alias, column), nulls_first=True)
        node.set("order", exp.Order(expressions=[ordered]))
        node.set("limit", exp.Limit(expression=exp.Literal.number(1)))

    return change


def _unlisted(number: int) -> Change:
    def change(node: exp.Expression) -> None:
        node.set("expressions", [e for i, e in enumerate(node.expressions) if i != number])

    return change


def _listed(alias: str, column: Column) -> Change:
    def change(node: exp.Expression) -> None:
        node.append("expressions", qualified(node, alias, column))

    return change
