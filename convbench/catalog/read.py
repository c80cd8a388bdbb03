"""Read spec files: YAML without aliases, tags or non-JSON values, of limited size and depth."""

from __future__ import annotations

import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from convbench.errors import SpecError
from convbench.util.regular import open_to_read

LIMIT = 1_000_000
"""Largest spec file in bytes."""
DEEPEST = 40
"""Deepest nesting of a spec; the parser, written in C, would crash on more."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Safe loader that refuses repeated keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen and key.value != "<<":
                    raise yaml.MarkedYAMLError(
                        problem=f"key {key.value!r} is repeated", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        out: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return out


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises SpecError naming the file if it cannot be read, has more than 1,000,000 bytes, or holds
    anything else, an empty file included.
    """
    return parse_yaml(read_source(path), str(path))


def read_source(path: Path) -> str:
    """Return the text of a spec file; bytes that are not UTF-8 become replacement characters.

    Raises SpecError if it cannot be read or has more than 1,000,000 bytes.
    """
    try:
        with open_to_read(path) as file:
            data = file.read(LIMIT + 1)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LIMIT:
        raise SpecError(f"{path}: found more than {LIMIT:,} bytes; expected fewer")
    return data.decode("utf-8", errors="replace")


def parse_yaml(text: str, origin: str) -> dict[str, Any]:
    """Return the mapping in YAML text, with keys in their order.

    Raises SpecError beginning with `origin` for invalid YAML, repeated keys, aliases, tags, nesting
    of more than 40, an empty text or other values than a mapping, and values that JSON lacks.
    """
    try:
        _refuse_unsafe(text)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(f"{origin}:{where}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecError(f"{origin}: not valid YAML: {line}") from None
    if not isinstance(value, dict):
        raise SpecError(f"{origin}: found {type(value).__name__}; expected a mapping of keys")
    refuse_non_json(value, origin)
    return value


def _refuse_unsafe(text: str) -> None:
    """Raise MarkedYAMLError for aliases, which can expand without limit, for tags, which create
    objects, and for deep nesting."""
    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=_Base):
        problem = ""
        if isinstance(event, yaml.AliasEvent):
            problem = "aliases (*name) are not supported; use extends:"
        elif getattr(event, "tag", None) not in (None, "!", "tag:yaml.org,2002:str"):
            problem = f"tags ({event.tag}) are not supported"
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            problem = f"nested more than {DEEPEST} deep" if depth > DEEPEST else ""
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def refuse_non_json(value: Any, origin: str, key: str = "") -> None:
    """Raise SpecError for values that JSON lacks: dates, keys that are no text, infinities, huge
    numbers."""
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise SpecError(
                    f"{origin}: {key or '(top)'}: found the key {name!r:.60}; expected text, so "
                    "put it in quotes"
                )
            refuse_non_json(item, origin, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            refuse_non_json(item, origin, f"{key}.{number}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise SpecError(f"{origin}: {key}: found {value}; expected a finite number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise SpecError(f"{origin}: {key}: found a number of more than 64 bits; expected less")
    elif value is not None and not isinstance(value, str | int | float):
        raise SpecError(
            f"{origin}: {key}: found the {type(value).__name__} {value}; expected text, so put "
            "it in quotes"
        )
