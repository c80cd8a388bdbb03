"""What a template may call: filters, tests and methods by name; nothing else is a function.

`call` counts the operands and the result; a function that makes more than both counts it before it
makes it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from jinja2 import filters
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import htmlsafe_json_dumps

from convbench.templates.budget import Budget, Refused

Function = Callable[..., Any]
"""Takes the budget, the value in front of `|` or `.`, and the arguments."""

PRECISION: Final = 20
"""Most decimal places that a number is rounded to."""


def show(value: object) -> str:
    """Return a value as it is printed."""
    return value if isinstance(value, str) else str(value)


def call(
    budget: Budget,
    function: Function,
    value: Any,
    args: Sequence[Any] = (),
    named: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Call a listed function: its operands and its result count as handled."""
    for operand in (value, *args, *named.values()):
        budget.handle(operand)
    result = function(budget, value, *args, **named)
    budget.handle(result)
    return result


def _free(function: Callable[..., Any]) -> Function:
    """A function whose result is about as long as its operands."""
    return lambda _budget, value, *args, **named: function(value, *args, **named)


def _of_text(function: Callable[..., Any]) -> Function:
    return lambda _budget, value, *args, **named: function(show(value), *args, **named)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"found a {type(value).__name__}; expected text")
    return value


def _number(value: object) -> int | float:
    if not isinstance(value, int | float):
        raise Refused(f"found a {type(value).__name__}; expected a number")
    return value


def _replace(budget: Budget, value: object, old: object, new: object, count: int = -1) -> str:
    text, old, new = show(value), show(old), show(new)
    found = text.count(old)
    times = found if count is None or count < 0 else min(count, found)
    budget.text(len(text) + times * len(new))
    return text.replace(old, new, times)


def _join(budget: Budget, items: Any, between: str = "", attribute: Any = None) -> str:
    found = items if attribute is None else _attributes(items, attribute)
    texts = [show(item) for item in found]
    budget.text(sum(map(len, texts)) + len(_text(between)) * len(texts))
    return between.join(texts)


def _joined(budget: Budget, between: str, items: Any) -> str:
    return _join(budget, items, between)


def _indent(
    budget: Budget, value: object, width: Any = 4, first: bool = False, blank: bool = False
) -> str:
    text = show(value)
    by = len(width) if isinstance(width, str) else max(int(width), 0)
    budget.text(len(text) + by * (len(text.splitlines()) + 1))
    return filters.do_indent(text, width, first, blank)


def _truncate(
    _budget: Budget, value: object, length: int = 255, killwords: bool = False,
    end: str = "...", leeway: int = 5,
) -> str:  # fmt: skip
    text = show(value)
    if len(text) <= length + leeway:
        return text
    kept = text[: max(length - len(_text(end)), 0)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def _round(_budget: Budget, value: object, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > PRECISION:
        raise Refused(f"round: found {precision} places; expected at most {PRECISION}")
    return filters.do_round(_number(value), precision, method)


def _attributes(items: Any, path: object) -> list[Any]:
    """Return the entry of each item; `a.b` goes two mappings deep."""
    return [_entry(item, show(path).split(".")) for item in items]


def _entry(item: Any, path: list[str]) -> Any:
    for part in path:
        if not isinstance(item, dict) or part not in item:
            raise Refused(f"found no entry {part!r}")
        item = item[part]
    return item


def _map(
    budget: Budget, items: Any, name: Any = None, *args: Any, attribute: Any = None
) -> list[Any]:
    if attribute is not None:
        return _attributes(items, attribute)
    function = _named(FILTERS, name)
    return [call(budget, function, item, args) for item in items]


def _chosen(keep: bool, by_entry: bool) -> Function:
    """select, reject, selectattr and rejectattr."""

    def choose(budget: Budget, items: Any, *args: Any) -> list[Any]:
        values = _attributes(items, args[0]) if by_entry else list(items)
        name, *rest = args[by_entry:] or (None,)
        test = (lambda _b, value: bool(value)) if name is None else _named(TESTS, name)
        return [
            item
            for item, value in zip(items, values, strict=True)
            if bool(call(budget, test, value, rest)) is keep
        ]

    return choose


def _named(known: Mapping[str, Function], name: object) -> Function:
    if not isinstance(name, str) or name not in known:
        raise Refused(f"found {name!r}; expected one of: {', '.join(sorted(known))}")
    return known[name]


def _sort(
    budget: Budget, items: Any, reverse: bool = False, case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:  # fmt: skip
    values = list(items)
    keys = values if attribute is None else _attributes(values, attribute)
    for _ in range(len(values).bit_length()):  # as often as an item is compared
        budget.handle(keys)
    if not case_sensitive:
        keys = [key.lower() if isinstance(key, str) else key for key in keys]
    order = sorted(range(len(values)), key=keys.__getitem__, reverse=bool(reverse))
    return [values[i] for i in order]


def _sum(_budget: Budget, items: Any, attribute: Any = None, start: Any = 0) -> int | float:
    found = items if attribute is None else _attributes(items, attribute)
    return sum((_number(item) for item in found), _number(start))


def _reverse(_budget: Budget, value: Any) -> Any:
    return value[::-1] if isinstance(value, str | list) else list(value)[::-1]


def _json(_budget: Budget, value: object, indent: None = None) -> str:
    return str.__str__(htmlsafe_json_dumps(value, sort_keys=True, indent=indent))


def _divisible(by: int) -> Function:
    return lambda _budget, value: _number(value) % 2 == by


FILTERS: Final[dict[str, Function]] = {
    "abs": lambda _budget, value: abs(_number(value)),
    "capitalize": _free(filters.do_capitalize),
    "count": _free(len),
    "default": _free(lambda value, other="", boolean=False: value or other if boolean else value),
    "first": _free(lambda value: next(iter(value), "")),
    "float": _free(filters.do_float),
    "indent": _indent,
    "int": _free(filters.do_int),
    "items": _free(lambda value: [[key, item] for key, item in value.items()]),
    "join": _join,
    "last": _free(lambda value: next(reversed(value), "")),
    "length": _free(len),
    "list": _free(list),
    "lower": _of_text(str.lower),
    "map": _map,
    "max": _free(lambda value: max(value, default="")),
    "min": _free(lambda value: min(value, default="")),
    "reject": _chosen(keep=False, by_entry=False),
    "rejectattr": _chosen(keep=False, by_entry=True),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "select": _chosen(keep=True, by_entry=False),
    "selectattr": _chosen(keep=True, by_entry=True),
    "sort": _sort,
    "string": _of_text(str),
    "sum": _sum,
    "title": _free(filters.do_title),
    "tojson": _json,
    "trim": _of_text(str.strip),
    "truncate": _truncate,
    "upper": _of_text(str.upper),
    "wordcount": _of_text(filters.do_wordcount),
}
FILTERS["d"] = FILTERS["default"]

_SAME: Final = (
    "boolean", "false", "float", "integer", "lower", "mapping", "none", "number", "string",
    "true", "upper", "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">=",
    "<", "lt", "lessthan", "<=", "le", "in",
)  # fmt: skip
TESTS: Final[dict[str, Function]] = {
    **{name: _free(cast(Callable[..., Any], JINJA_TESTS[name])) for name in _SAME},
    "defined": _free(lambda value: True),
    "undefined": _free(lambda value: False),
    "iterable": _free(lambda value: isinstance(value, str | list | dict)),
    "sequence": _free(lambda value: isinstance(value, str | list | dict)),
    "odd": _divisible(1),
    "even": _divisible(0),
    "divisibleby": lambda _budget, value, by: _number(value) % _number(by) == 0,
}

_TEXT_METHODS: Final = (
    "capitalize", "count", "endswith", "find", "isalpha", "isdigit", "isspace", "isupper",
    "islower", "lower", "lstrip", "removeprefix", "removesuffix", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "title", "upper",
)  # fmt: skip
TEXT: Final[dict[str, Function]] = {
    **{name: _free(getattr(str, name)) for name in _TEXT_METHODS},
    "join": _joined,
    "replace": _replace,
}
MAPPING: Final[dict[str, Function]] = {
    "get": _free(dict.get),
    "items": FILTERS["items"],
    "keys": _free(list),
    "values": _free(lambda value: list(value.values())),
}
LIST: Final[dict[str, Function]] = {
    "count": _free(operator.countOf),
    "index": _free(list.index),
}
METHODS: Final = frozenset(TEXT) | frozenset(MAPPING) | frozenset(LIST)
