"""Parse untrusted JSON into storable values: sanitised text, token counts and dollars."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

MOST = 2**53
"""Largest count that is believed."""
USAGE = ("usage", "usageMetadata", "usage_metadata", "meta")
"""Fields in which providers report the usage of a call."""
PROMPT = ("prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "prompt_eval_count")
REPLY = ("completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount", "eval_count")
"""Names of the two counts that are read: prompt tokens and reply tokens."""
TOTAL = ("total_tokens", "totalTokens", "totalTokenCount")
COUNTS = re.compile(r"token", re.IGNORECASE)
"""Names of the counts within the usage field, for every provider."""
TOP = re.compile(r"^(?:prompt_)?eval_count$")
"""Names of the counts outside the usage field (Ollama)."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(raw: bytes) -> Any:
    """Return the JSON value: strict JSON as it is, anything else as Python's lenient parser reads
    it.

    In the second case lone surrogates and bytes that are not UTF-8 become U+FFFD, and NaN, infinite
    numbers and integers beyond 2**53 become None, so that a reply that was paid for can be stored.
    Raise ValueError if the bytes are not JSON even so, or are nested too deeply.
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
    if isinstance(value, int) and abs(value) > MOST:
        return None
    return value


def safe_text(value: str) -> str:
    """Return the text encodable as UTF-8: surrogate pairs are joined, lone ones become U+FFFD."""
    if value.isascii() or not _SURROGATE.search(value):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def safe_count(value: object) -> int | None:
    """Return a token count from 0 to 2**53, given as an integer, a float (rounded) or numeric text.

    Return None for None, bools, negative, infinite or larger numbers and anything else.
    """
    if value is None or type(value) is int:  # most, and the first would raise below
        return value if value is not None and 0 <= value <= MOST else None
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return round(number) if 0 <= number <= MOST else None


def safe_dollars(value: object) -> float | None:
    """Return a finite, non-negative int or float as a float of dollars.

    Return None for any other value, bools and numeric text included.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def tidy_usage(body: Any) -> bool:
    """Make the token counts in a reply integers, in place; return True if anything changed.

    Counts that are no number from 0 to 2**53 are removed, and a usage field that is not an object
    becomes an empty one. A value that is not an object is left alone: False.
    """
    if not isinstance(body, dict):
        return False
    changed = _tidy_counts(body, TOP)
    for name in USAGE:
        if name in body and not isinstance(body[name], dict):
            body[name] = {}
            changed = True
        changed |= _tidy_nested(body.get(name))
    return changed


def _tidy_nested(value: Any) -> bool:
    """Tidy the counts of nested objects and lists, in place; return True if anything changed."""
    if isinstance(value, list):
        return max((_tidy_nested(item) for item in value), default=False)
    if not isinstance(value, dict):
        return False
    inner = max((_tidy_nested(item) for item in value.values()), default=False)
    return _tidy_counts(value, COUNTS) or inner


def _tidy_counts(value: dict[str, Any], names: re.Pattern[str]) -> bool:
    wrong = [
        key for key, item in value.items() if names.search(key) and not _is_valid_count(key, item)
    ]
    for key in wrong:
        number = safe_count(value.pop(key))
        if number is not None:
            value[key] = number
    return bool(wrong)


def _is_valid_count(key: str, value: object) -> bool:
    if isinstance(value, dict | list):  # such as `prompt_tokens_details`
        return key not in PROMPT + REPLY + TOTAL
    return type(value) is int and 0 <= value <= MOST


def token_counts(body: Any) -> tuple[int | None, int | None]:
    """Return (prompt tokens, reply tokens) of a reply tidied by `tidy_usage`, whatever the provider
    names them.

    Each is None if the reply does not say. A body that is not an object gives (None, None).
    """
    merged = dict(_iter_counts(body, ("", *USAGE)))
    prompt = next((merged[key] for key in PROMPT if key in merged), None)
    return prompt, next((merged[key] for key in REPLY if key in merged), None)


def _iter_counts(value: Any, into: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """Yield (name, integer) of an object and of its nested objects.

    At the first level only the objects named in `into` are entered, if it is not empty."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if type(item) is int:
            yield key, item
        elif not into or key in into:
            yield from _iter_counts(item)
