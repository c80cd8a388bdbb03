"""Filters, tests and methods that templates may call, each with its work counted."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Undefined

from convbench.util.plain_data import (
    DEEPEST,
    ITEM,
    LONGEST,
    STEP,
    TemplateRefusal,
    WorkBudget,
    as_number,
    check_bound,
)

PRECISION: Final = 20
"""Most decimal places to which a number is rounded."""
INDENT: Final = 8
"""Most spaces by which JSON is indented."""
ESCAPED: Final = 6
"""Most characters that one character becomes in JSON."""


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text, split at whitespace."""
    return tuple(text.split())


FILTERS: Final = split_words(
    "abs capitalize count d default first float indent int items join last length list lower map "
    "max min reject rejectattr replace reverse round select selectattr sort string sum title "
    "tojson trim truncate upper wordcount"
)
TESTS: Final = split_words(
    "boolean defined divisibleby even false float integer iterable lower mapping none number odd "
    "sequence string true undefined upper in == eq equalto != ne > gt greaterthan >= ge < lt "
    "lessthan <= le"
)
_TEXT_METHODS: Final = split_words(
    "capitalize count endswith find isalpha isdigit islower isspace isupper lower lstrip "
    "removeprefix removesuffix replace rsplit rstrip split splitlines startswith strip title upper"
)
METHODS: Final[dict[type, dict[str, Callable[..., Any]]]] = {
    str: {name: getattr(str, name) for name in _TEXT_METHODS}
    | {"join": lambda between, items: between.join(map(str, items))},
    dict: {
        "get": dict.get,
        "items": lambda value: [[key, item] for key, item in value.items()],
        "keys": list,
        "values": lambda value: list(value.values()),
    },
    list: {"count": operator.countOf, "index": list.index},
}
METHOD_NAMES: Final = frozenset(name for table in METHODS.values() for name in table)
ASKS_WHETHER: Final = ("defined", "undefined", "default", "d")
"""Tests and filters that accept an absent value."""


# -- cost of a call in units beyond its operands and its result; each may raise TemplateRefusal


def _numeric_cost(_budget: WorkBudget, *values: Any, **named: Any) -> int:
    return len([as_number(value) for value in (*values, *named.values())])


def _round_cost(_budget: WorkBudget, value: Any, precision: Any = 0, *_: Any, **__: Any) -> int:
    check_bound("decimal places", abs(as_number(precision)), PRECISION)
    return _numeric_cost(_budget, value)


def _sum_cost(budget: WorkBudget, items: Any, attribute: Any = None, start: Any = 0) -> int:
    return _numeric_cost(budget, start) + _per_item_cost(budget, items, attribute)


def _replace_cost(
    _budget: WorkBudget, value: Any, old: Any, new: Any, count: int | None = None
) -> int:
    times = str(value).count(str(old))
    return (times if count is None or count < 0 else min(times, count)) * len(str(new))


def _indent_cost(_budget: WorkBudget, value: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    by = len(width) if isinstance(width, str) else max(as_number(width), 0)
    return by * (len(str(value).splitlines()) + 1)


def _json_cost(budget: WorkBudget, value: Any, indent: Any = None) -> int:
    check_bound("spaces to indent by", abs(as_number(indent or 0)), INDENT)
    size = budget.count_value(value)
    size = ESCAPED * size + (indent or 0) * DEEPEST * size // ITEM
    check_bound("characters of JSON", size, LONGEST)
    return size


def _sort_cost(budget: WorkBudget, items: Any, *args: Any, **named: Any) -> int:
    keys = 1 + sum(str(arg).count(",") for arg in (*args, *named.values()))
    comparisons = budget.count_value(items) * len(items).bit_length() * keys
    return comparisons + _per_item_cost(budget, items, *args, **named)


def _per_item_cost(_budget: WorkBudget, items: Any, *args: Any, **named: Any) -> int:
    """Return the cost of a call that applies all arguments, such as a path, to each item."""
    return len(items) * sum(STEP + len(str(arg)) for arg in (*args, *named.values()))


def _per_character_cost(_budget: WorkBudget, value: Any, *args: Any, **named: Any) -> int:
    """Return the cost of a call that may compare each character with all of the arguments'."""
    return len(str(value)) * sum(len(str(arg)) for arg in (*args, *named.values()))


_PER_ITEM: Final = split_words("join map max min reject rejectattr select selectattr")
_PER_CHARACTER: Final = split_words("trim strip() lstrip() rstrip() rsplit()")
_COSTS: Final[Mapping[str, Callable[..., int]]] = {
    **dict.fromkeys(("abs", "divisibleby", "even", "odd"), _numeric_cost),
    **dict.fromkeys(("replace", "replace()"), _replace_cost),
    **dict.fromkeys(_PER_ITEM, _per_item_cost),
    **dict.fromkeys(_PER_CHARACTER, _per_character_cost),
    "indent": _indent_cost,
    "join()": lambda _budget, value, items: len(value) * len(items),
    "round": _round_cost,
    "sort": _sort_cost,
    "sum": _sum_cost,
    "tojson": _json_cost,
}
_PYTHON_S: Final = re.compile(r"^[\w.<>]+\(\)")  # a function of Python's, at the head of an error


def with_counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter, test or method that counts its operands, its work and its result against the
    rendering's budget.

    It raises TemplateRefusal if that is too much or the call is wrong (a TypeError), and
    MissingField for an absent operand, except for `defined`, `undefined` and `default`.
    """
    first = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    @pass_context
    def call_counted(context: Any, /, *args: Any, **named: Any) -> Any:
        passed = {"context": context, "eval_context": context.eval_ctx}
        before = [passed.get(first, context.environment)] if first else []
        try:
            if name not in ASKS_WHETHER:
                for operand in (*args, *named.values()):
                    context.budget.count_value(operand)
                if name in _COSTS:
                    context.budget.spend_units(_COSTS[name](context.budget, *args, **named))
            result = function(*before, *args, **named)
        except TypeError as error:
            raise TemplateRefusal(f"{name}: {_PYTHON_S.sub('it', str(error))}") from None
        if name not in ASKS_WHETHER:
            result = _plain_type(result)
        context.budget.count_value(result)
        return as_number(result) if isinstance(result, int) else result

    return call_counted


def _plain_type(result: Any) -> Any:
    """Return a call's result in plain types; an undefined result becomes an empty text."""
    if isinstance(result, Undefined):
        return ""
    if isinstance(result, str):
        return str.__str__(result)
    return list(result) if isinstance(result, Iterator) else result


def method_filter(name: str) -> Callable[..., Any]:
    """Return a filter that calls the method of this name on a value, with its work counted.

    It raises TemplateRefusal if the value's type has no such method.
    """

    def call_method(value: Any, *args: Any, **named: Any) -> Any:
        table = METHODS.get(type(value), {})
        if name not in table:
            raise TemplateRefusal(
                f"a {type(value).__name__} has no {name}(); it has {sorted(table)}"
            )
        return table[name](value, *args, **named)

    return with_counting(f"{name}()", call_method)
