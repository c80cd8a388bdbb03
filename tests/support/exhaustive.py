"""Which of a test's parameters `make test` takes, and which `make test-all` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def only(chosen: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Return parameters for `parametrize`, marked `exhaustive` but for the chosen ones."""
    return [value if chosen(value) else exhaustive(value) for value in values]


def first_of(values: Iterable[Any]) -> list[Any]:
    """Return parameters for `parametrize`, marked `exhaustive` but for the first."""
    first, *rest = values
    return [first, *map(exhaustive, rest)]


def exhaustive(value: Any) -> Any:
    """Return one parameter, or a tuple of them, marked so."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
