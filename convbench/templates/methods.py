"""What may be called on a text, a mapping or a list; nothing here changes one."""

from __future__ import annotations

import operator
from typing import Any, Final

from convbench.templates.budget import Budget
from convbench.templates.calls import Function, free
from convbench.templates.filters import FILTERS


def _joined(budget: Budget, between: str, items: Any) -> Any:
    return FILTERS["join"](budget, items, between)


_TEXT_METHODS: Final = (
    "capitalize", "count", "endswith", "find", "isalpha", "isdigit", "isspace", "isupper",
    "islower", "lower", "lstrip", "removeprefix", "removesuffix", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "title", "upper",
)  # fmt: skip
_TEXT: Final[dict[str, Function]] = {
    **{name: free(getattr(str, name)) for name in _TEXT_METHODS},
    "join": _joined,
    "replace": FILTERS["replace"],
}
_MAPPING: Final[dict[str, Function]] = {
    "get": free(dict.get),
    "items": FILTERS["items"],
    "keys": free(list),
    "values": free(lambda value: list(value.values())),
}
_LIST: Final[dict[str, Function]] = {
    "count": free(operator.countOf),
    "index": free(list.index),
}
METHODS: Final[dict[type, dict[str, Function]]] = {str: _TEXT, dict: _MAPPING, list: _LIST}
METHOD_NAMES: Final = frozenset(name for table in METHODS.values() for name in table)
