"""What is taken out of logs: keys always, and what tells who somebody is if it is asked for."""

import re
from collections import Counter
from typing import Any

import orjson

from convbench.util.redact import KEY, PATTERNS

KEYS = [(starts, re.compile(r"(?<![A-Za-z0-9])" + pattern)) for _, starts, pattern in PATTERNS]
PII = (  # (what stands for it, how it is written) of what tells who somebody is
    ("[email]", re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")),
    ("[card]", re.compile(r"(?<![\d.])(?:\d[ -]?){12,18}\d(?![\d.])")),
    ("[phone]", re.compile(r"(?<![\w.])\+\d(?:[ .()-]{0,2}\d){7,14}(?!\d)")),
    ("[phone]", re.compile(r"(?<![\w.])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w.])")),
    (r"\1[user]", re.compile(r"((?:/home/|/Users/|\b[A-Z]:\\{1,2}Users\\{1,2}))[^/\\\s\"'<>:]+")),
)


def redacted(line: str, counts: Counter[str], *, pii: bool) -> bytes:
    """Return a record's JSON text without keys, and with `pii` without addresses, phone numbers,
    cards and names of home folders. A text without any is returned as it is."""
    if not pii and not any(start in line for starts, _ in KEYS for start in starts):
        return line.encode()
    return orjson.dumps(_clean(orjson.loads(line), counts, pii))


def _clean(value: Any, counts: Counter[str], pii: bool) -> Any:
    if isinstance(value, list):
        return [_clean(item, counts, pii) for item in value]
    if isinstance(value, dict):
        return {_clean(k, counts, pii): _clean(item, counts, pii) for k, item in value.items()}
    if not isinstance(value, str):
        return value
    for _, pattern in (key for key in KEYS if any(start in value for start in key[0])):
        value, number = pattern.subn(KEY, value)
        counts["keys, each replaced by [key]"] += number
    for mark, pattern in PII if pii else ():
        for match in reversed([*pattern.finditer(value)]):
            if mark != "[card]" or _is_card(match[0]):
                counts["addresses, phones, cards and home folders, each replaced"] += 1
                value = value[: match.start()] + match.expand(mark) + value[match.end() :]
    return value


def _is_card(text: str) -> bool:
    """Return whether digits are a card's by their check digit (Luhn)."""
    digits = [int(sign) for sign in text if sign.isdigit()]
    odd = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(odd)) % 10 == 0
