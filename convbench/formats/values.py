"""Values of logs as the types that they stand for: none of these functions raises an error."""

import ast
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any


def as_text(value: Any) -> str:
    """Return a text as it is, nothing as an empty text, any other value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return an object, also one written as JSON text; an empty one for any other value."""
    return read if isinstance(read := parsed(value), dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list, also one written as JSON text; an empty one for any other value."""
    return read if isinstance(read := parsed(value), list) else []


def parsed(value: Any) -> Any:
    """Return the list or object that a text writes as JSON or Python; other values unchanged."""
    start = value.lstrip()[:1] if isinstance(value, str) else ""
    read = None
    if start in ("[", "{", '"'):
        with suppress(ValueError, RecursionError):
            read = parsed(json.loads(value))
    if read is None and start in ("[", "{") and len(value) <= 1 << 20:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            # NumPy writes lists without commas
            read = ast.literal_eval(re.sub(r"\}[ \t]*+\n\s*+\{", "}, {", value.strip()))
    return read if isinstance(read, list | dict) else value


def without_nulls(value: Any) -> Any:
    """Return a value without the keys that are null, at every depth, as tables fill them in."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def as_number(value: Any) -> float | None:
    """Return a finite number, also of a boolean or a text; None for another value."""
    if isinstance(value, str):
        text = value.strip().lower()
        with suppress(ValueError):
            value = float({"true": "1", "false": "0"}.get(text, text))
    is_number = isinstance(value, bool | int | float) and -1e100 <= value <= 1e100
    return float(value) if is_number else None


def as_time(value: Any) -> float | None:
    """Return the seconds since 1970 of ISO 8601, or of a number of seconds to nanoseconds."""
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
    number = as_number(value)
    while number is not None and number > 1e11:
        number /= 1000
    return number


def named_scores(value: Any) -> dict[str, float]:
    """Return scores by name: of a number, of rewards of turns, which are summed, of a mapping, or
    of a list of {name, score}. `reward` is the only one, the one of that name, or `overall…`."""
    value = parsed(value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        value = {str(first_of(i, "name", "key")): first_of(i, "score", "value") for i in value}
    elif isinstance(value, list):
        numbers = [as_number(item) for item in value]
        value = None if None in numbers else sum(n or 0.0 for n in numbers)
    fields = value if isinstance(value, dict) else {"reward": value}
    scores = {str(k): number for k, v in fields.items() if (number := as_number(v)) is not None}
    main = [k for k in scores if k == "reward" or k.startswith("overall") or len(scores) == 1]
    return scores | ({"reward": scores[main[0]]} if main else {})


def first_of(fields: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that is not null; None without one."""
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def kept(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return these fields, of them those that hold something."""
    return {name: fields[name] for name in names if fields.get(name) not in (None, "", [], {})}


def at(value: Any, *path: str | int) -> Any:
    """Return what lies at a path of keys and places, through JSON text too; None without it."""
    for step in path:
        if isinstance(step, int):
            value = next(iter(as_list(value)[step:]), None)
        else:
            value = as_mapping(value).get(step)
    return value
