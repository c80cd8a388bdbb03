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

PlainValue: TypeAlias = "str | int | float | bool | list[PlainValue] | dict[Any, PlainValue] | None"
"""The only types that a template sees; subclasses are converted to them."""
EXACT: Final = frozenset({str, int, float, bool, type(None)})
_LISTS: Final = (list, tuple, Sequence, set, frozenset)
_AS_TEXT: Final = (date, datetime, time, timedelta, Decimal, UUID, PurePath)  # as they print


class TemplateRefusal(ValueError):
    """A template uses something that no template may use, or too much work."""


class MissingField(TemplateRefusal):
    """A template names a value that is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is undefined")
        self.name = name


class NotPlainData(TemplateRefusal):
    """A value has no plain form: bytes, a picture, a function."""


def check_bound(what: str, number: int, most: int) -> None:
    """Raise TemplateRefusal if `number` exceeds `most` or is not a number.

    `what` names the counted things.
    """
    if not number <= most:  # nan is not
        raise TemplateRefusal(f"found {number:,} {what}; expected at most {most:,}")


def check_present(value: object) -> None:
    """Raise MissingField if the value is jinja2's placeholder of an absent one; do nothing for any
    other value."""
    bool(value)


def as_number(value: Any, sign: str = "") -> Any:
    """Return a number unchanged; true and false count as numbers.

    Raise TemplateRefusal for any other value and for a whole number of more than BITS bits,
    MissingField for an absent value. `sign` names the operator in the error.
    """
    check_present(value)
    if not isinstance(value, int | float):
        expected = f"{sign} is for numbers in templates" if sign else "expected a number"
        raise TemplateRefusal(f"{expected}; found a {type(value).__name__}")
    if isinstance(value, int):
        check_bound("bits in a number", value.bit_length(), BITS)
    return value


class WorkBudget:
    """The units of work that one rendering may still spend."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK

    def spend_units(self, units: int) -> None:
        """Subtract the units of work that is about to be done.

        Raise TemplateRefusal if too few are left; they are subtracted all the same.
        """
        self.left -= units
        if not self.left >= 0:  # nan is not
            raise TemplateRefusal(
                f"takes more than {WORK:,} units of work; expected a smaller template"
            )

    def count_value(self, value: object, depth: int = 0) -> int:
        """Spend the units of handling a value, with its items and the characters of its texts, and
        return them.

        Raise MissingField for an absent value, TemplateRefusal for one that is not plain data, is
        too long or too deeply nested, or for which too few units are left.
        """
        before = self.left
        if isinstance(value, str):
            self.spend_units(ITEM + len(value))
            check_bound("characters in a text", len(value), LONGEST)
            return ITEM + len(value)
        self.spend_units(ITEM)
        if isinstance(value, list | dict):
            check_bound("levels of nesting in a value", depth + 1, DEEPEST)
            for item in value:
                self.count_value(item, depth + 1)
                if isinstance(value, dict):
                    self.count_value(value[item], depth + 1)
        elif type(value) not in EXACT:
            check_present(value)
            raise TemplateRefusal(
                f"found a {type(value).__name__}; expected text, numbers or lists"
            )
        return before - self.left


def plain_fields(
    names: Iterable[str], fields: Mapping[str, object], budget: WorkBudget
) -> dict[str, PlainValue]:
    """Return deep copies of the named fields as plain data, by name; names that `fields` lacks are
    left out.

    Raise TemplateRefusal, naming the field, for a value without a plain form or for too much work.
    The work is subtracted from `budget`.
    """
    out = {}
    for name in names:
        if name in fields:
            try:
                out[name] = _copy_plain(fields[name], budget)
            except TemplateRefusal as error:
                raise TemplateRefusal(f"{name}: {error}") from None
    return out


def _copy_plain(value: object, budget: WorkBudget, depth: int = 0) -> PlainValue:
    """Return a deep copy in plain types.

    Records become mappings of their fields, tuples and sets become lists, dates their text, and
    subclasses their base. A mapping's entry without a plain form is left out, so that a row may
    hold bytes if a template needs only its text. Raise NotPlainData for a value without a plain
    form, TemplateRefusal for one that is too deep or too much work.
    """
    budget.spend_units(STEP)
    if type(value) in EXACT:
        return value  # type: ignore[return-value]
    if depth >= DEEPEST:
        raise TemplateRefusal(f"a field is nested more than {DEEPEST} deep")
    if isinstance(value, _LISTS) and not isinstance(value, str | bytes | bytearray):
        return [_copy_plain(item, budget, depth + 1) for item in value]
    if (entries := _entries_of(value)) is not None:
        out: dict[Any, PlainValue] = {}
        for key, item in entries:
            try:
                out[_plain_scalar(key)] = _copy_plain(item, budget, depth + 1)
            except NotPlainData:
                continue
        return out
    return _plain_scalar(value)


def _entries_of(value: object) -> Iterable[tuple[object, object]] | None:
    """Return the fields of a record or the entries of a mapping; None for any other value."""
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    if isinstance(value, Mapping):
        return value.items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _plain_scalar(value: object) -> str | int | float | None:
    """Return text, a number, true, false or null in its plain type.

    Raise NotPlainData for any other value.
    """
    if type(value) in EXACT:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral | Real):
        return int.__int__(int(value)) if isinstance(value, Integral) else float(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    raise NotPlainData(f"found a {type(value).__name__}; expected text, numbers, lists or mappings")
