"""What may follow `is`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from jinja2.tests import TESTS as JINJA_TESTS

from convbench.templates.calls import Function, as_number, free


def _divisible(by: int) -> Function:
    return lambda _budget, value: as_number(value) % 2 == by


_SAME: Final = (
    "boolean", "false", "float", "integer", "lower", "mapping", "none", "number", "string",
    "true", "upper", "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">=",
    "<", "lt", "lessthan", "<=", "le", "in",
)  # fmt: skip
TESTS: Final[dict[str, Function]] = {
    **{name: free(cast(Callable[..., Any], JINJA_TESTS[name])) for name in _SAME},
    "defined": free(lambda value: True),
    "undefined": free(lambda value: False),
    "iterable": free(lambda value: isinstance(value, str | list | dict)),
    "sequence": free(lambda value: isinstance(value, str | list | dict)),
    "odd": _divisible(1),
    "even": _divisible(0),
    "divisibleby": lambda _budget, value, by: as_number(value) % as_number(by) == 0,
}
