"""Refuse to publish anything that looks like a key. Errors name the place, never the value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from convbench.blot import _START, PATTERNS, in_use
from convbench.errors import RunError

TEXT = (".json", ".jsonl", ".md", ".yaml", ".jinja", ".txt")


class Scanner:
    """Finds key-like text and the values of this machine's own key variables."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._values = in_use(environment)
        self._patterns = [(kind, marks, re.compile(_START + p)) for kind, marks, p in PATTERNS]

    def find(self, text: str) -> str | None:
        """Return what kind of secret stands in the text, None where there is none."""
        for kind, marks, pattern in self._patterns:
            if any(mark in text for mark in marks) and pattern.search(text):
                return kind
        return next((f"the value of ${n}" for v, n in self._values.items() if v in text), None)


def refuse_secrets(folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Raise a RunError that names file, line and field of the first secrets in a folder."""
    scanner = Scanner(environment)
    found = [
        finding
        for path in sorted(folder.rglob("*"))
        if path.suffix in TEXT and path.is_file()
        for finding in _in_file(scanner, path, path.relative_to(folder).as_posix())
    ]
    if found:
        more = f" (and {len(found) - 5} more places)" if len(found) > 5 else ""
        raise RunError(
            "found what looks like secrets, so nothing is published: "
            f"{'; '.join(found[:5])}{more}. Withdraw such a key, take it out of the run, "
            "then publish again"
        )


def _in_file(scanner: Scanner, path: Path, name: str) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            kind = scanner.find(line)
            if kind is None and "\\" in line and path.suffix in (".json", ".jsonl"):
                kind = _escaped(scanner, line)
            if kind is not None:
                yield f"{name}:{number}{_field(scanner, line)}: {kind}"


def _escaped(scanner: Scanner, line: str) -> str | None:
    """What stands in a line's strings once JSON's escapes are undone."""
    return next((kind for _, text in strings(_value(line)) if (kind := scanner.find(text))), None)


def _field(scanner: Scanner, line: str) -> str:
    """Where in a JSON line the secret stands."""
    value = _value(line)
    place = next((way for way, text in strings(value) if scanner.find(text)), None)
    if place is None or not isinstance(value, dict) or scanner.find(place):
        return ""
    owner = value.get("conversation_id") or value.get("example_id")
    return f" ({owner}, {place})" if owner and not scanner.find(str(owner)) else f" ({place})"


def _value(line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def strings(value: Any, way: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every text in a JSON value."""
    if isinstance(value, str):
        yield way, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{way} (a key's name)".strip(), str(key)
            yield from strings(item, f"{way}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, f"{way}[{index}]")
