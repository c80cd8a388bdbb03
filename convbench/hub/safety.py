"""Refuse to publish anything that looks like a key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import RunError
from convbench.util.redact import _START, PATTERNS, keys_in_use

TEXT = (".json", ".jsonl", ".md", ".yaml", ".jinja", ".txt")
BLOCK = 1 << 18
"""Characters that are scanned at once."""


class SecretScanner:
    """Finds text that looks like a key, and the values of this machine's key variables."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._values = keys_in_use(environment)
        self._patterns = [(kind, marks, re.compile(_START + p)) for kind, marks, p in PATTERNS]

    def find_secret(self, text: str) -> str | None:
        """Return the kind of a secret in the text, `the value of $NAME` for that of a key variable;
        None if there is none.

        Of several kinds it is the first in the order of the patterns.
        """
        for kind, marks, pattern in self._patterns:
            if any(mark in text for mark in marks) and pattern.search(text):
                return kind
        return next((f"the value of ${n}" for v, n in self._values.items() if v in text), None)


def refuse_secrets(folder: Path) -> None:
    """Raise RunError if text files of a folder and its subfolders contain secrets; it names file,
    line and field of the first five.

    Text files are those with an ending in TEXT; others are not read.
    """
    scanner = SecretScanner()
    findings = [
        finding
        for path in sorted(folder.rglob("*"))
        if path.suffix in TEXT and path.is_file()
        for finding in _file_secrets(scanner, path, path.relative_to(folder).as_posix())
    ]
    if findings:
        more = f" (and {len(findings) - 5} more places)" if len(findings) > 5 else ""
        raise RunError(
            "found what looks like secrets, so nothing is published: "
            f"{'; '.join(findings[:5])}{more}. Revoke such a key, take it out of the run, "
            "then publish again"
        )


def _file_secrets(scanner: SecretScanner, path: Path, name: str) -> Iterator[str]:
    number = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        while some := file.readlines(BLOCK):
            if _may_hold_secret(scanner, some):
                for line_number, line in enumerate(some, number + 1):
                    kind = scanner.find_secret(line) or _escaped_secret(scanner, line)
                    if kind is not None:
                        yield f"{name}:{line_number}{_secret_field(scanner, line)}: {kind}"
            number += len(some)


def _may_hold_secret(scanner: SecretScanner, some: Sequence[str]) -> bool:
    """Return True if the lines may contain a secret. They are scanned joined, once as they are and
    once with JSON's escapes decoded; no pattern depends on where a line ends."""
    if scanner.find_secret("".join(some)) is not None:
        return True
    texts: list[str] = []
    for line in some:
        if "\\" in line:
            _collect_texts(_json_value(line), texts)
    return scanner.find_secret("\n".join(texts)) is not None


def _collect_texts(value: Any, texts: list[str]) -> None:
    """Append every string in a JSON value to the list, keys too."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        texts.extend(value)
        for item in value.values():
            _collect_texts(item, texts)
    elif isinstance(value, list):
        for item in value:
            _collect_texts(item, texts)


def _escaped_secret(scanner: SecretScanner, line: str) -> str | None:
    """Return the kind of the first secret in a JSON line's decoded strings, None without one."""
    return next(
        (
            kind
            for _, text in json_strings(_json_value(line))
            if (kind := scanner.find_secret(text))
        ),
        None,
    )


def _secret_field(scanner: SecretScanner, line: str) -> str:
    """Return where in a JSON line the secret is, as ` (record, path)`; "" if it cannot be named
    without telling it."""
    value = _json_value(line)
    location = next((way for way, text in json_strings(value) if scanner.find_secret(text)), None)
    if location is None or not isinstance(value, dict) or scanner.find_secret(location):
        return ""
    owner = value.get("conversation_id") or value.get("example_id")
    return (
        f" ({owner}, {location})"
        if owner and not scanner.find_secret(str(owner))
        else f" ({location})"
    )


def _json_value(line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def json_strings(value: Any, way: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every string in a JSON value, in order; a path is like `a.b[0]`.

    The name of a key is yielded before its value, with the path of its object and ` (a key's
    name)`. Numbers, booleans and null are skipped.
    """
    if isinstance(value, str):
        yield way, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{way} (a key's name)".strip(), str(key)
            yield from json_strings(item, f"{way}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from json_strings(item, f"{way}[{index}]")
