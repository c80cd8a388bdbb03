"""Which of a test's parameters `make test` takes, and which `make test-all` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def only(chosen: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Return parameters for `parametrize`, marked `exhaustive` but for the chosen ones."""
    return [value if chosen(value) else exhaustive(value) for value in values]


def first_of(values: Iterable[Any]) -> list[Any]:
    """Return parameters for `parametrize`, marked `exhaustive` but for the first."""
    first, *rest = values
    return [first, *map(exhaustive, rest)]


def every_nth(n: int, values: Iterable[Any]) -> list[Any]:
    """Return parameters for `parametrize`, marked `exhaustive` but for the first and every `n`th
    after it."""
    return [exhaustive(value) if i % n else value for i, value in enumerate(values)]


def by_turns(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return every pair for `parametrize`, marked `exhaustive` but for as many as hold each value
    of either; a tuple's parts are parameters of their own."""
    return [
        one if i % len(second) == j or j % len(first) == i else exhaustive(one)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
        for one in [(*_parts(a), *_parts(b))]
    ]


def exhaustive(value: Any) -> Any:
    """Return one parameter, or a tuple of them, marked so."""
    return pytest.param(*_parts(value), marks=pytest.mark.exhaustive)


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
