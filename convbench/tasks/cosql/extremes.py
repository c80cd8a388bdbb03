"""Detect right queries that take the wrong end: the question asks for the least and the query takes
the most, or the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

_AMOUNTS = (
    re.compile(r"(?<!at )\b(?:most|highest|largest|maximum|greatest|biggest)\b(?! rank)", re.I),
    re.compile(r"(?<!at )\b(?:least|lowest|smallest|minimum|fewest)\b(?! rank)", re.I),
)
_AGES = (re.compile(r"\boldest\b", re.IGNORECASE), re.compile(r"\byoungest\b", re.IGNORECASE))
"""Words of the one end and of the other. Others ("first", "best") depend on what a column means."""


def takes_wrong_end(text: str, query: exp.Expression) -> bool:
    """Return whether a question asks for one end only and its query takes only the other.

    A query's ends are found in `ORDER BY` with a limit, `max` and `min`.
    """
    ends = list(_order_ends(query)) or list(_aggregate_ends(query))
    of_ages = all(column.name.lower() == "age" for column, _ in ends)
    most, least = (
        bool(amount.search(text) or (of_ages and age.search(text)))
        for amount, age in zip(_AMOUNTS, _AGES, strict=True)
    )
    return most != least and {end for _, end in ends} == {not most}


def _order_ends(query: exp.Expression) -> Iterator[tuple[exp.Expression, bool]]:
    """Yield what is ordered by under a limit, and whether the largest comes first."""
    for select in query.find_all(exp.Select):
        order = select.args.get("order")
        if order is not None and select.args.get("limit"):
            yield order.expressions[0].this, bool(order.expressions[0].args.get("desc"))


def _aggregate_ends(query: exp.Expression) -> Iterator[tuple[exp.Expression, bool]]:
    """Yield what the largest or smallest is taken of, and whether it is the largest."""
    for end in query.find_all(exp.Max, exp.Min):
        yield end.this, isinstance(end, exp.Max)
