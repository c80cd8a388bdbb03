"""What comes from outside as values that can be stored: JSON, texts, counts, dollars, addresses."""

from __future__ import annotations

import json
import math
import re
from typing import Any
from urllib.parse import urlsplit

import orjson

from convbench.errors import FatalModelError

MOST = 2**53
"""Largest count that is believed."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SECRET = re.compile(r"//[^/]*@|[?#].*")


def loads(raw: bytes) -> Any:
    """Return a JSON value: strict JSON as it is, anything else as Python's lenient parser reads it.

    In the second case lone surrogates and bytes that are not UTF-8 become U+FFFD, and NaN, infinite
    numbers and integers beyond 2**53 become None, so that a reply that was paid for can be stored.
    Raise ValueError if the bytes are no JSON even so, or are nested too deeply.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return _clean_value(json.loads(raw.decode("utf-8", "replace")))
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    if isinstance(value, dict):
        return {safe_text(key): _clean_value(item) for key, item in value.items()}
    return None if isinstance(value, int) and abs(value) > MOST else value


def safe_text(value: str) -> str:
    """Return the text encodable as UTF-8: surrogate pairs are joined, lone ones become U+FFFD."""
    if value.isascii() or not _SURROGATE.search(value):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def safe_count(value: object) -> int | None:
    """Return a count from 0 to 2**53, given as a number or its text, rounded; None for anything
    else."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return round(number) if 0 <= number <= MOST else None


def safe_dollars(value: object) -> float | None:
    """Return a finite number from 0 on as dollars; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def check_address(url: str, said_by: str) -> None:
    """Raise FatalModelError unless a URL is a printable http(s) address with a host.

    `said_by` names the option, variable or file that it is from. The message repeats neither user
    name, password nor query.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets or a port that are none
        good = False
    if not good or not url.isprintable() or " " in url:
        shown = _SECRET.sub(lambda match: "//" if match[0][0] == "/" else "", url)[:120]
        raise FatalModelError(
            f"{said_by}: found {shown!r}; expected http(s)://HOST[:PORT]/v1, e.g. "
            "http://127.0.0.1:8000/v1"
        )
