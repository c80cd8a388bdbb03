"""Plain data, the only values that a template can reach, and the work budget of a rendering.

Plain data are text, numbers, true and false, null, and lists and mappings of these. Work is counted
and not timed, so that a template ends at the same point on any machine.
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
"""Most units of one rendering, about a second; one handled character is one unit."""
STEP: Final = 50
"""Units of one copied value, and of one node of a loop's body for each item."""
ITEM: Final = 20
"""Units of one handled item of a list or mapping, or of any other value."""
LONGEST: Final = 5_000_000
"""Most characters of one text, the output included."""
DEEPEST: Final = 40
"""Deepest nesting of a value."""
BITS: Final = 256
"""Largest whole number in a calculation, in bits."""

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[Any, Plain] | None"
"""The only types that a template sees; subclasses are converted to them."""
EXACT: Final = frozenset({str, int, float, bool, type(None)})
_LISTS: Final = (list, tuple, Sequence, set, frozenset)
_AS_TEXT: Final = (date, datetime, time, timedelta, Decimal, UUID, PurePath)  # as they print


class Refused(ValueError):
    """A template uses something that no template may use, or too much work."""


class Missing(Refused):
    """A template names a value that is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is undefined")
        self.name = name


class Formless(Refused):
    """A value has no plain form: bytes, a picture, a function."""


def check_bound(what: str, number: int, most: int) -> None:
    """Raise Refused if `number` exceeds `most`. `what` names the counted things."""
    if not number <= most:  # nan is not
        raise Refused(f"found {number:,} {what}; expected at most {most:,}")


def check_present(value: object) -> None:
    """Raise Missing if the value is jinja2's placeholder of an absent one."""
    bool(value)


def as_number(value: Any, sign: str = "") -> Any:
    """Return a number unchanged. Raises Refused for any other value or too large an integer."""
    check_present(value)
    if not isinstance(value, int | float):
        expected = f"{sign} is for numbers in templates" if sign else "expected a number"
        raise Refused(f"{expected}; found a {type(value).__name__}")
    if isinstance(value, int):
        check_bound("bits in a number", value.bit_length(), BITS)
    return value


class Budget:
    """The units of work that one rendering may still spend."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK

    def spend(self, units: int) -> None:
        """Subtract work that is about to be done. Raises Refused if too little is left."""
        self.left -= units
        if not self.left >= 0:  # nan is not
            raise Refused(f"takes more than {WORK:,} units of work; expected a smaller template")

    def handle(self, value: object, depth: int = 0) -> int:
        """Spend the units of handling a value, with its items and the characters of its texts, and
        return them. Raises Missing for an absent value, Refused for one that is not plain data."""
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
    """Return copies of the named fields as plain data. Raises Refused, naming the field."""
    out = {}
    for name in names:
        if name in fields:
            try:
                out[name] = _copy(fields[name], budget)
            except Refused as error:
                raise Refused(f"{name}: {error}") from None
    return out


def _copy(value: object, budget: Budget, depth: int = 0) -> Plain:
    """Return a deep copy in plain types.

    Records become mappings of their fields, tuples and sets become lists, dates their text, and
    subclasses their base. A mapping's entry without a plain form is left out, so that a row may
    hold bytes if a template needs only its text. Raises Formless for a value without a plain form.
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
    """Return the fields of a record or the entries of a mapping; None for any other value."""
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    if isinstance(value, Mapping):
        return value.items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _scalar(value: object) -> str | int | float | None:
    """Return text, a number, true, false or null in its plain type. Raises Formless otherwise."""
    if type(value) in EXACT:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral | Real):
        return int.__int__(int(value)) if isinstance(value, Integral) else float(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    raise Formless(f"found a {type(value).__name__}; expected text, numbers, lists or mappings")
