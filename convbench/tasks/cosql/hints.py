"""Which values a query asks for, so that databases can be filled with them and near misses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from sqlglot import exp

from convbench.tasks.cosql.queries import COLUMN

Value = int | float | str | None

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Between, exp.In)


def wanted(trees: Iterable[exp.Expression]) -> dict[int, list[Value]]:
    """Return, by schema column, the values that these queries compare it with."""
    found: dict[int, list[Value]] = defaultdict(list)
    for tree in trees:
        for node in tree.find_all(*_COMPARISONS):
            sides = _own(node, exp.Column, exp.AggFunc)
            named = (column for side in sides for column in side.find_all(exp.Column))
            columns = [column.meta[COLUMN] for column in named if COLUMN in column.meta]
            for literal in _own(node, exp.Literal) if len(columns) == 1 else ():
                value = _value(literal, pattern=isinstance(node, exp.Like))
                if value not in found[columns[0]]:
                    found[columns[0]].append(value)
    return dict(found)


def joined(trees: Iterable[exp.Expression]) -> Iterator[tuple[int, int]]:
    """Yield pairs of schema columns that are compared with each other: they share values."""
    for tree in trees:
        for node in tree.find_all(exp.EQ, exp.In):
            columns = [c.meta[COLUMN] for c in node.find_all(exp.Column) if COLUMN in c.meta]
            if len(columns) >= 2:
                yield columns[0], columns[1]


def _own(node: exp.Expression, *kinds: type[exp.Expression]) -> list[exp.Expression]:
    """Return the nodes of these kinds that are direct arguments (not those of a nested query)."""
    return [child for child in node.iter_expressions() if isinstance(child, kinds)]


def _value(literal: exp.Expression, *, pattern: bool) -> Value:
    """Return a literal's value; for a LIKE pattern, a text that matches it."""
    text = str(literal.name)
    if pattern:
        return text.replace("%", "").replace("_", "a")
    if literal.args.get("is_string"):
        return text
    return float(text) if "." in text or "e" in text.lower() else int(text)
