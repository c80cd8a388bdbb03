"""Refuse to publish anything that looks like a key. Errors name the place, never the value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import RunError

_START = r"(?<![A-Za-z0-9])"
PATTERNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("an Anthropic API key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{16,}"),
    ("an OpenAI-style API key", ("sk-",), r"sk-[A-Za-z0-9_-]{20,}"),
    ("a Hugging Face token", ("hf_", "api_org_"), r"(?:hf|api_org)_[A-Za-z0-9]{20,}"),
    ("an AWS access key", ("AKIA", "ASIA"), r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("a Google API key", ("AIza",), r"AIza[0-9A-Za-z_-]{35}"),
    (
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})",
    ),
    ("a Slack token", ("xox",), r"xox[abprs]-[A-Za-z0-9-]{10,}"),
    (
        "a provider's API key",
        ("gsk_", "xai-", "r8_", "nvapi-", "pplx-", "fw_"),
        r"(?:gsk_|xai-|r8_|nvapi-|pplx-|fw_)[A-Za-z0-9_-]{24,}",
    ),
    (
        "a private key",
        ("PRIVATE KEY",),
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    ),
    (
        "an address with a password",
        ("://",),
        r"[a-z][a-z0-9+.]{1,15}://[^/\s:@\"'\\<>]{1,200}:[^/\s:@\"'\\<>]{3,200}@[\w.-]+",
    ),
    (
        "an authorization header",
        ("Bearer ",),
        r"(?i:authorization)[\"'\\]*\s*[:=]\s*[\"'\\]*Bearer\s+[\w.~+/-]{16,}",
    ),
)
"""What it is, texts of which one must be there (a quick look), and how it looks."""
NAMES = re.compile(r"(?:_API_KEY|_SECRET|_TOKEN|_ACCESS_KEY|_PASSWORD)$|^HF_TOKEN$|^API_KEY$")
SHORTEST = 8
"""Values of environment variables shorter than this are no secrets that can be searched for."""
TEXT = (".json", ".jsonl", ".md", ".yaml", ".jinja", ".txt")


class Scanner:
    """Finds key-like text and the values of this machine's own key variables."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        known = os.environ if environment is None else environment
        self._values = {
            value: name
            for name, value in known.items()
            if NAMES.search(name) and len(value) >= SHORTEST
        }
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
