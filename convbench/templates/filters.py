"""What may follow `|`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jinja2 import filters
from jinja2.utils import htmlsafe_json_dumps

from convbench.templates.budget import DEEPEST, ITEM, Budget, Refused
from convbench.templates.calls import (
    ABSENT,
    Function,
    as_number,
    as_text,
    call,
    free,
    of_text,
    show,
)
from convbench.templates.conditions import TESTS

PRECISION: Final = 20
"""Most decimal places that a number is rounded to."""
INDENT: Final = 8
"""Most spaces that JSON is indented by."""
ESCAPED: Final = 6
"""Characters that one becomes in JSON."""


def _replace(budget: Budget, value: object, old: object, new: object, count: int = -1) -> str:
    text, old, new = show(value), show(old), show(new)
    found = text.count(old)
    times = found if count is None or count < 0 else min(count, found)
    budget.text(len(text) + times * len(new))
    return text.replace(old, new, times)


def _join(budget: Budget, items: Any, between: str = "", attribute: Any = None) -> str:
    found = items if attribute is None else _attributes(items, attribute)
    texts = [show(item) for item in found]
    budget.text(sum(map(len, texts)) + len(as_text(between)) * len(texts))
    return between.join(texts)


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
    kept = text[: max(length - len(as_text(end)), 0)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def _round(_budget: Budget, value: object, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > PRECISION:
        raise Refused(f"round: found {precision} places; expected at most {PRECISION}")
    return filters.do_round(as_number(value), precision, method)


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
    return sum((as_number(item) for item in found), as_number(start))


def _reverse(_budget: Budget, value: Any) -> Any:
    return value[::-1] if isinstance(value, str | list) else list(value)[::-1]


def _json(budget: Budget, value: object, indent: int | None = None) -> str:
    if indent is not None and not 0 <= indent <= INDENT:
        raise Refused(f"tojson: found indent={indent}; expected 0 to {INDENT}")
    size = budget.handle(value)
    budget.text(ESCAPED * size + (indent or 0) * DEEPEST * size // ITEM)
    return str.__str__(htmlsafe_json_dumps(value, sort_keys=True, indent=indent))


def _default(_budget: Budget, value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    return default_value if value is ABSENT or (boolean and not value) else value


FILTERS: Final[dict[str, Function]] = {
    "abs": lambda _budget, value: abs(as_number(value)),
    "capitalize": free(filters.do_capitalize),
    "count": free(len),
    "default": _default,
    "first": free(lambda value: next(iter(value), "")),
    "float": free(filters.do_float),
    "indent": _indent,
    "int": free(filters.do_int),
    "items": free(lambda value: [[key, item] for key, item in value.items()]),
    "join": _join,
    "last": free(lambda value: next(reversed(value), "")),
    "length": free(len),
    "list": free(list),
    "lower": of_text(str.lower),
    "map": _map,
    "max": free(lambda value: max(value, default="")),
    "min": free(lambda value: min(value, default="")),
    "reject": _chosen(keep=False, by_entry=False),
    "rejectattr": _chosen(keep=False, by_entry=True),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "select": _chosen(keep=True, by_entry=False),
    "selectattr": _chosen(keep=True, by_entry=True),
    "sort": _sort,
    "string": of_text(str),
    "sum": _sum,
    "title": free(filters.do_title),
    "tojson": _json,
    "trim": of_text(str.strip),
    "truncate": _truncate,
    "upper": of_text(str.upper),
    "wordcount": of_text(filters.do_wordcount),
}
FILTERS["d"] = FILTERS["default"]
