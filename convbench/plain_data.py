"""Plain data: all that a template can reach, and the work that it may cost.

Text, numbers, true and false, null, lists and mappings of these, and nothing else. Work is counted
and not timed, so that a template ends alike on any machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Final, TypeAlias
from uuid import UUID

from pydantic import BaseModel

WORK: Final = 20_000_000
"""Most units of one rendering, about a second; a character that is handled is one."""
STEP: Final = 50
"""Units of a value that is copied, and of a node of a loop's body for each item."""
ITEM: Final = 20
"""Units of an item of a list or mapping, or of one other value, that is handled."""
LONGEST: Final = 5_000_000
"""Most characters of one text, the output included."""
DEEPEST: Final = 40
"""Deepest nesting of a value."""
BITS: Final = 256
"""Largest whole number in a calculation, in bits."""

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[Any, Plain] | None"
"""The only types that a template sees, and none of their subclasses."""
EXACT: Final = frozenset({str, int, float, bool, type(None)})
_LISTS: Final = (list, tuple, Sequence, set, frozenset)
_AS_TEXT: Final = (date, datetime, time, timedelta, Decimal, UUID, PurePath)  # as they print


class Refused(ValueError):
    """A template asks for what no template may have."""


class Missing(Refused):
    """A template names what is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is undefined")
        self.name = name


class Formless(Refused):
    """A value is no data: bytes, a picture, a function."""


def check_bound(what: str, number: int, most: int) -> None:
    """Raise Refused for more than there may be."""
    if not number <= most:  # nan is not
        raise Refused(f"found {number:,} {what}; expected at most {most:,}")


def check_present(value: object) -> None:
    """Raise Missing for what stands for an absent value."""
    bool(value)


def as_number(value: Any, sign: str = "") -> Any:
    """Return a number as it is; Refused for another value or a number that is too large."""
    check_present(value)
    if not isinstance(value, int | float):
        expected = f"{sign} is for numbers in templates" if sign else "expected a number"
        raise Refused(f"{expected}; found a {type(value).__name__}")
    if isinstance(value, int):
        check_bound("bits in a number", value.bit_length(), BITS)
    return value


class Budget:
    """The work that is left to one rendering."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK

    def spend(self, units: int) -> None:
        """Count work that is about to be done; Refused where it is too much."""
        self.left -= units
        if not self.left >= 0:  # nan is not
            raise Refused(f"takes more than {WORK:,} units of work; expected a smaller template")

    def handle(self, value: object, depth: int = 0) -> int:
        """Count a value that is handled in full, with its items and the characters of its texts;
        return the units. Raises Missing where it is absent, Refused where it is no plain data."""
        before = self.left
        if isinstance(value, str):
            self.spend(ITEM + len(value))
            check_bound("characters in a text", len(value), LONGEST)
            return ITEM + len(value)
        self.spend(ITEM)
        if isinstance(value, list | dict):
            check_bound("levels of nesting in a value", depth + 1, DEEPEST)
            for item in value:
                self.handle(item, depth + 1)
                if isinstance(value, dict):
                    self.handle(value[item], depth + 1)
        elif type(value) not in EXACT:
            check_present(value)
            raise Refused(f"found a {type(value).__name__}; expected text, numbers or lists")
        return before - self.left


def world(names: Iterable[str], fields: Mapping[str, object], budget: Budget) -> dict[str, Plain]:
    """Return the named fields as plain data: all that a template can reach."""
    out = {}
    for name in names:
        if name in fields:
            try:
                out[name] = _copy(fields[name], budget)
            except Refused as error:
                raise Refused(f"{name}: {error}") from None
    return out


def _copy(value: object, budget: Budget, depth: int = 0) -> Plain:
    """Return a deep copy in plain types; Formless for what has no plain form.

    Records become mappings of their fields, tuples and sets lists, dates their text, subclasses
    their base. An entry of a mapping that has no plain form is left out, so that a row of which
    a template needs only the text may hold bytes.
    """
    budget.spend(STEP)
    if type(value) in EXACT:
        return value  # type: ignore[return-value]
    if depth >= DEEPEST:
        raise Refused(f"a field is nested more than {DEEPEST} deep")
    if isinstance(value, _LISTS) and not isinstance(value, str | bytes | bytearray):
        return [_copy(item, budget, depth + 1) for item in value]
    if (entries := _entries(value)) is not None:
        out: dict[Any, Plain] = {}
        for key, item in entries:
            try:
                out[_scalar(key)] = _copy(item, budget, depth + 1)
            except Formless:
                continue
        return out
    return _scalar(value)


def _entries(value: object) -> Iterable[tuple[object, object]] | None:
    """Return the fields of a record or the entries of a mapping, None for another value."""
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    if isinstance(value, Mapping):
        return value.items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _scalar(value: object) -> str | int | float | None:
    """Return text, a number, true, false or null in its plain type; Formless for another value."""
    if type(value) in EXACT:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral | Real):
        return int.__int__(int(value)) if isinstance(value, Integral) else float(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    raise Formless(f"found a {type(value).__name__}; expected text, numbers, lists or mappings")
