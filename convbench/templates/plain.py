"""A template's world: text, numbers, yes or no, None, lists and mappings of these, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, TypeAlias
from uuid import UUID

from pydantic import BaseModel

from convbench.templates.budget import DEEPEST, STEP, Budget, Refused

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[Any, Plain] | None"
"""The only types in a template's world, and none of their subclasses."""

_EXACT = frozenset({str, int, float, bool, type(None)})
_NAMED = (date, datetime, time, timedelta, Decimal, UUID, PurePath)
"""Types that stand as the text that they print as."""


class Formless(Refused):
    """A value is no data: bytes, a picture, a function."""


def world(names: Iterable[str], fields: Mapping[str, object], budget: Budget) -> dict[str, Plain]:
    """Return the named fields as plain data: all that a template can reach."""
    out = {}
    for name in names:
        if name in fields:
            try:
                out[name] = plain(fields[name], budget)
            except Refused as error:
                raise Refused(f"{name}: {error}") from None
    return out


def plain(value: object, budget: Budget, depth: int = 0) -> Plain:
    """Return a deep copy in plain types; Formless for what has no plain form.

    Records become mappings of their fields, tuples and sets lists, dates their text, subclasses
    their base. An entry of a mapping that has no plain form is left out, so that a row of which
    a template needs only the text may hold bytes.
    """
    budget.spend(STEP)
    if type(value) in _EXACT:
        return value  # type: ignore[return-value]
    if depth >= DEEPEST:
        raise Refused(f"a field is nested more than {DEEPEST} deep")
    if type(value) is tuple or type(value) is list:  # most, ahead of what is asked of few
        return [plain(item, budget, depth + 1) for item in value]
    if isinstance(value, BaseModel):
        return _mapping(_fields(value), budget, depth)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral | Real):
        return int.__int__(int(value)) if isinstance(value, Integral) else float(value)
    if isinstance(value, _NAMED):
        return str(value)
    if (entries := _entries(value)) is not None:
        return _mapping(entries, budget, depth)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [plain(item, budget, depth + 1) for item in value]
    raise Formless(f"found a {type(value).__name__}; expected text, numbers, lists or mappings")


def _fields(value: BaseModel) -> Iterable[tuple[object, object]]:
    """Return the fields of a record."""
    return [(name, getattr(value, name)) for name in _names(type(value))]


@lru_cache(256)
def _names(record: type[BaseModel]) -> tuple[str, ...]:
    return tuple(record.model_fields)


def _entries(value: object) -> Iterable[tuple[object, object]] | None:
    """Return the fields of a dataclass or the entries of a mapping, None for another value."""
    if isinstance(value, Mapping):
        return value.items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _mapping(
    entries: Iterable[tuple[object, object]], budget: Budget, depth: int
) -> dict[Any, Plain]:
    out: dict[Any, Plain] = {}
    for key, item in entries:
        if isinstance(key, str):
            key = str.__str__(key)
        if type(key) not in _EXACT:
            continue
        if type(item) in _EXACT:
            budget.spend(STEP)
            out[key] = item  # type: ignore[assignment]
            continue
        with suppress(Formless):
            out[key] = plain(item, budget, depth + 1)
    return out
