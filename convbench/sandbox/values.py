"""Are two outputs the same? They come as JSON from inside the sandbox and are only data here.

Numbers are equal within 1e-9 (relative, or absolute near 0), nan equals nan; a numpy value is
what it holds; a generator is the list of its items; sets and mappings have no order; a list and a
tuple differ, as they do in Python; frames are equal by names and values, objects of a task's own
classes by class name and fields. What is not written whole (`convbench.sandbox.encoder`) is no
value and never comes here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from convbench.sandbox.encoder import DEPTH, NODES

NEAR = 1e-9
_EXACT = re.compile(r"[+-]?[\d.]{1,400}(?:/\d{1,400}|[eE][+-]?\d{1,3})?", re.ASCII)
_ENDLESS = ("NaN", "Infinity", "-Infinity")
PAIRED = 500
"""Most unordered items that are paired one by one where they are not equal letter by letter."""


def same(one: Any, two: Any) -> bool:
    """Whether two decoded outputs are the same."""
    a, b = number(one), number(two)
    if a is not None or b is not None:
        return a is not None and b is not None and close(a, b)
    if not isinstance(one, list) or not isinstance(two, list):
        return type(one) is type(two) and bool(one == two)
    kinds = {one[0], two[0]}
    if kinds <= {"l", "g"}:
        return _in_order(one[1], two[1])
    if len(kinds) > 1:
        return False
    if one[0] == "t":
        return _in_order(one[1], two[1])
    if one[0] in ("s", "d"):
        return _unordered(one[1], two[1])
    if one[0] == "o":
        return bool(one[1] == two[1]) and same(one[2], two[2])
    return bool(one == two)


def number(value: Any) -> int | float | complex | Fraction | None:
    """Return the number that a decoded value is; None where it is none."""
    if isinstance(value, int):
        return value
    if not isinstance(value, list) or value[0] not in ("i", "f", "c", "n"):
        return None
    if value[0] == "i":
        return int(value[1], 16)
    if value[0] == "f":
        return float(value[1])
    if value[0] == "c":
        return complex(float(value[1]), float(value[2]))
    if value[1] in _ENDLESS:
        return float(value[1])
    if not _EXACT.fullmatch(value[1]):
        raise ValueError("a number of a size that only costs memory")
    return Fraction(value[1])


def close(one: Any, two: Any) -> bool:
    """Whether two numbers are equal, or near where one of them is not exact."""
    if one == two:
        return True
    if isinstance(one, int | Fraction) and isinstance(two, int | Fraction):
        return False
    try:
        if isinstance(one, complex) or isinstance(two, complex):
            a, b = complex(one), complex(two)
            return close(a.real, b.real) and close(a.imag, b.imag)
        a, b = float(one), float(two)
    except OverflowError:
        return False
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR)


def _in_order(one: Sequence[Any], two: Sequence[Any]) -> bool:
    return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))


def _unordered(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Whether every item has a partner: by its letters first, then by trying."""
    if len(one) != len(two):
        return False
    left = {_letters(item): item for item in two}
    mine = {_letters(item): item for item in one}
    rest = [item for letters, item in mine.items() if letters not in left]
    others = [item for letters, item in left.items() if letters not in mine]
    if len(rest) != len(others) or len(rest) > PAIRED:
        return False
    for item in rest:
        partner = next((i for i, other in enumerate(others) if same(item, other)), None)
        if partner is None:
            return False
        del others[partner]
    return True


def _letters(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


def well_formed(value: Any) -> bool:
    """Whether this is what the program inside writes, no deeper and no more of it; a hostile
    answer may write anything. Two values of this form can be compared without an error."""
    todo, nodes = [(value, 0)], 0
    while todo:
        found, depth = todo.pop()
        nodes += 1
        if nodes > NODES or depth > DEPTH:
            return False
        inner = _inner(found)
        if inner is None:
            return False
        todo += [(item, depth + 1) for item in inner]
    return True


def _inner(value: Any) -> Sequence[Any] | None:
    """Return the values that a value holds, none for a plain one; None where it is malformed."""
    if value is None or isinstance(value, bool | int | str):
        return ()
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        return None
    tag, *rest = value
    if tag in ("l", "g", "t", "s", "d"):
        return rest[0] if len(rest) == 1 and isinstance(rest[0], list) else None
    if tag == "o":
        return rest[1:] if len(rest) == 2 and isinstance(rest[0], str) else None
    lengths = {"i": 1, "f": 1, "n": 1, "c": 2, "b": 1, "r": 2}
    texts = len(rest) == lengths.get(tag) and all(isinstance(text, str) for text in rest)
    try:
        return () if texts and (number(value) is not None or tag in ("b", "r")) else None
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
