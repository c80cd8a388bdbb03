"""What a stranger's JSON says, in a form that can be kept: text, counts and dollars made safe."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

MOST = 2**53
"""Counts beyond this are nobody's."""
USAGE = ("usage", "usageMetadata", "usage_metadata", "meta")
"""Fields under which providers tell what a call used."""
PROMPT = ("prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "prompt_eval_count")
REPLY = ("completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount", "eval_count")
"""Names of the two counts that matter."""
TOTAL = ("total_tokens", "totalTokens", "totalTokenCount")
COUNTS = re.compile(r"token", re.IGNORECASE)
"""Names of the counts in there, of every provider."""
TOP = re.compile(r"^(?:prompt_)?eval_count$")
"""Names of the counts that stand outside of it (Ollama's)."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(raw: bytes) -> Any:
    """Return the JSON value; ValueError where it is none.

    Strict JSON as it stands. Else what Python reads: lone surrogates and bytes that are not UTF-8
    become U+FFFD, NaN and infinite numbers None, so that a reply that was paid for can be kept.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return _plain(json.loads(raw.decode("utf-8", "replace")))
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, int) and abs(value) > MOST:
        return None
    return value


def text(value: str) -> str:
    """Return a text that UTF-8 can hold: pairs of surrogates joined, lone ones U+FFFD."""
    if value.isascii() or not _SURROGATE.search(value):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def count(value: object) -> int | None:
    """Return a count of tokens, however it is written; None where it is none."""
    if value is None or type(value) is int:  # most, and the first would raise below
        return value if value is not None and 0 <= value <= MOST else None
    try:
        found = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return round(found) if 0 <= found <= MOST else None


def dollars(value: object) -> float | None:
    """Return an amount of dollars; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def tidy_usage(body: Any) -> bool:
    """Make the counts in a reply whole numbers, in place; return whether anything changed.

    Counts that are none are left out, and a usage that is no object becomes an empty one.
    """
    if not isinstance(body, dict):
        return False
    changed = _counts(body, TOP)
    for name in USAGE:
        if name in body and not isinstance(body[name], dict):
            body[name] = {}
            changed = True
        changed |= _deep(body.get(name))
    return changed


def _deep(value: Any) -> bool:
    """The same for an object within an object or a list."""
    if isinstance(value, list):
        return max((_deep(item) for item in value), default=False)
    if not isinstance(value, dict):
        return False
    inner = max((_deep(item) for item in value.values()), default=False)
    return _counts(value, COUNTS) or inner


def _counts(value: dict[str, Any], names: re.Pattern[str]) -> bool:
    wrong = [key for key, item in value.items() if names.search(key) and not _whole(key, item)]
    for key in wrong:
        found = count(value.pop(key))
        if found is not None:
            value[key] = found
    return bool(wrong)


def _whole(key: str, value: object) -> bool:
    if isinstance(value, dict | list):  # such as `prompt_tokens_details`
        return key not in PROMPT + REPLY + TOTAL
    return type(value) is int and 0 <= value <= MOST


def token_counts(body: Any) -> tuple[int | None, int | None]:
    """Return (prompt tokens, reply tokens) that a tidy reply tells, as any provider names them."""
    merged = dict(_flat(body, ("", *USAGE)))
    prompt = next((merged[key] for key in PROMPT if key in merged), None)
    return prompt, next((merged[key] for key in REPLY if key in merged), None)


def _flat(value: Any, into: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of an object and of the objects in it; `into` limits the latter."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if type(item) is int:
            yield key, item
        elif not into or key in into:
            yield from _flat(item)
