"""What is taken out of logs: keys always, and what tells who somebody is if it is asked for."""

import re
from collections import Counter

import orjson

from convbench.util.redact import KEY, PATTERNS

TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"')  # of JSON
KEYS = [(starts, re.compile(r"(?<![A-Za-z0-9])" + pattern)) for _, starts, pattern in PATTERNS]
PII = (  # (what stands for it, how it is written) of what tells who somebody is
    ("[email]", re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")),
    ("[card]", re.compile(r"(?<![\d.])(?:\d[ -]?){12,18}\d(?![\d.])")),
    ("[phone]", re.compile(r"(?<![\w.])\+\d(?:[ .()-]{0,2}\d){7,14}(?!\d)")),
    ("[phone]", re.compile(r"(?<![\w.])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w.])")),
    (r"\1[user]", re.compile(r"((?:/home/|/Users/|\b[A-Z]:\\{1,2}Users\\{1,2}))[^/\\\s\"'<>:]+")),
)


def redacted(line: str, counts: Counter[str], *, pii: bool) -> bytes:
    """Return a record's JSON text without keys, and with `pii` without what PII describes."""

    def cleaned(match: re.Match[str]) -> str:
        text: str = orjson.loads(match[0])
        for _, pattern in (key for key in KEYS if any(start in text for start in key[0])):
            text, number = pattern.subn(KEY, text)
            counts["keys, each replaced by [key]"] += number
        for mark, pattern in PII if pii else ():
            for found in reversed([*pattern.finditer(text)]):
                if mark != "[card]" or _is_card(found[0]):
                    counts["addresses, phones, cards and home folders, each replaced"] += 1
                    text = text[: found.start()] + found.expand(mark) + text[found.end() :]
        return orjson.dumps(text).decode()

    is_any = pii or any(start in line for starts, _ in KEYS for start in starts)
    return (TEXT.sub(cleaned, line) if is_any else line).encode()


def _is_card(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdigit()]  # the last checks them (Luhn)
    return (sum(digits[::2]) + sum(sum(divmod(2 * d, 10)) for d in digits[1::2])) % 10 == 0
