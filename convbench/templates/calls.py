"""How a template calls: a listed function, its operands and its result counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from convbench.templates.budget import Budget, Refused

Function = Callable[..., Any]
"""Takes the budget, the value in front of `|` or `.`, and the arguments.

`call` counts operands and result; a function that makes more than both counts it beforehand.
"""

ABSENT: Final = object()
"""Stands for what a template names and its world lacks; only `default` and `defined` meet it."""


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


def free(function: Callable[..., Any]) -> Function:
    """A function whose result is about as long as its operands."""
    return lambda _budget, value, *args, **named: function(value, *args, **named)


def of_text(function: Callable[..., Any]) -> Function:
    return lambda _budget, value, *args, **named: function(show(value), *args, **named)


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"found a {type(value).__name__}; expected text")
    return value


def as_number(value: object) -> int | float:
    if not isinstance(value, int | float):
        raise Refused(f"found a {type(value).__name__}; expected a number")
    return value
