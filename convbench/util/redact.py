"""Redact API keys and paths of this machine from records and errors.

Every record passes a filter on its way to the disk that removes the values of the keys in use (of
the environment and the Hub), as they are and as JSON, an address or base64 encodes them. Errors may
repeat text of a foreign server or a library, so from them everything is removed that looks like a
key or is in the place of one, paths, and all but the last line of a traceback.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import quote, quote_plus, urlsplit

KEY = "[key]"
"""Replacement of a key."""
SHORTEST = 8
"""Values shorter than this are not taken for keys."""
_NAMES = frozenset(
    {
        "KEY",
        "KEYS",
        "APIKEY",
        "TOKEN",
        "TOKENS",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASS",
        "PAT",
        "CREDENTIAL",
        "CREDENTIALS",
    }
)
"""Words in the names of variables that hold keys."""
_NO_KEY = re.compile(r"(?i)[a-z _-]{1,15}|[~./].*|\w:\\.*|https?://[^@?]*|[\d.,:\s-]+|\$.*")
"""Values that are no keys: placeholders (`not-needed`), paths, plain addresses and numbers."""

_START = r"(?<![A-Za-z0-9])"
PATTERNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("an Anthropic API key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{16,}"),
    ("an OpenAI-style API key", ("sk-",), r"sk-[A-Za-z0-9_-]{20,}"),
    ("a Hugging Face token", ("hf_", "api_org_"), r"(?:hf|api_org)_[A-Za-z0-9]{20,}"),
    ("an AWS access key", ("AKIA", "ASIA"), r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("a Google API key", ("AIza",), r"AIza[0-9A-Za-z_-]{35}"),
    ("a Google access token", ("ya29.",), r"ya29\.[A-Za-z0-9_-]{20,}"),
    (
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})",
    ),
    ("a Slack token", ("xox",), r"xox[abprs]-[A-Za-z0-9-]{10,}"),
    (
        "a provider's API key",
        ("gsk_", "xai-", "r8_", "nvapi-", "pplx-", "fw_", "csk-", "dapi"),
        r"(?:(?:gsk_|xai-|r8_|nvapi-|pplx-|fw_|csk-)[A-Za-z0-9_-]{24,}|dapi[0-9a-f]{32})",
    ),
    (
        "a signed token",
        ("eyJ",),
        r"eyJ[A-Za-z0-9_-]{10,2000}+\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
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
"""(kind of key, texts of which one must occur, pattern); the texts are a quick test."""
_WHERE = re.compile(
    r"""(?ix)
    ( (?:authorization|api[-_\ ]?key|x-api-key|access[-_]?token|token|secret|password|signature
       |credential|(?<=[?&])key)
      (?:\ provided)? ["'\\]*+ \s*+[:=]\s*+ ["'\\]*+ (?:(?:bearer|basic)\s+)?
    | \b(?:bearer|basic)\s+ )
    (?=[^\s"'&,;<>\d]{0,500}+\d) [^\s"'&,;<>\\]{16,}"""
)
"""A place of a key, and a value there that could be one: 16 characters or more, with a digit."""
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"')
"""A text in JSON."""
_PII = (
    ("[email]", re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")),
    ("[card]", re.compile(r"(?<![\d.])(?:\d[ -]?){12,18}\d(?![\d.])")),
    ("[phone]", re.compile(r"(?<![\w.])\+\d(?:[ .()-]{0,2}\d){7,14}(?!\d)")),
    ("[phone]", re.compile(r"(?<![\w.])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w.])")),
    (r"\1[user]", re.compile(r"((?:/home/|/Users/|\b[A-Z]:\\{1,2}Users\\{1,2}))[^/\\\s\"'<>:]+")),
)
"""(replacement, pattern) of what tells who somebody is."""
_USER = re.compile(r"(?<=://)[^/\s@]{1,300}@")
_PATH = re.compile(r"(?<![\w:/.\]])(?:~|/[\w.+-]+)(?:/[^\s/'\":,;()<>]+)*/(?=[^\s/'\":,;()<>])")


def redact_bytes(data: bytes, hidden: Sequence[bytes] | None = None) -> bytes:
    """Return bytes with the keys in use replaced by `[key]`, in every encoded form that is searched
    for. `hidden` are these forms, if already known."""
    for form in known_forms() if hidden is None else hidden:
        if form in data:
            data = data.replace(form, KEY.encode())
    return data


def redact_error(text: str) -> str:
    """Return an error's message as one line for a record: no keys, no folders of this machine's
    paths, and of a traceback only its last line."""
    if "Traceback (most recent call last)" in text:
        text = next(line for line in reversed(text.splitlines()) if line.strip())
    return " ".join(_PATH.sub(_hide_folders, redact_text(text)).split())


def redact_text(text: str) -> str:
    """Return a text with keys replaced by `[key]`.

    These are the keys in use, even if encoded or broken across lines, and whatever looks like a key
    or is in the place of one. An address with user and password is replaced up to the end of its
    host; of any other only what comes before the `@`. A header `Authorization: Bearer` is replaced
    with its name.
    """
    text = redact_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    for pattern in _wrapped_patterns(tuple(keys_in_use())):
        text = pattern.sub(KEY, text)
    for pattern in _key_patterns():
        text = pattern.sub(KEY, text)
    return _USER.sub(f"{KEY}@", _WHERE.sub(rf"\1{KEY}", text))


def redact_record(line: str, counts: Counter[str], *, pii: bool) -> bytes:
    """Return a record's JSON text without what looks like a key, and with `pii` without mail
    addresses, phone numbers, cards and names of home folders; add to `counts` how many there
    were."""

    def cleaned(match: re.Match[str]) -> str:
        text: str = json.loads(match[0])
        for pattern in _key_patterns():
            text, number = pattern.subn(KEY, text)
            counts["keys, each replaced by [key]"] += number
        for mark, pattern in _PII if pii else ():
            for found in reversed([*pattern.finditer(text)]):
                if mark != "[card]" or _is_card(found[0]):
                    counts["addresses, phones, cards and home folders, each replaced"] += 1
                    text = text[: found.start()] + found.expand(mark) + text[found.end() :]
        return json.dumps(text, ensure_ascii=False)

    is_any = pii or any(start in line for _, starts, _ in PATTERNS for start in starts)
    return (_TEXT.sub(cleaned, line) if is_any else line).encode()


def _is_card(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdigit()]  # the last checks them (Luhn)
    return (sum(digits[::2]) + sum(sum(divmod(2 * d, 10)) for d in digits[1::2])) % 10 == 0


def strip_address(url: str) -> str:
    """Return an address without user, query and fragment, which may hold a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def shown_address(url: str) -> str:
    """Return an address for display: `[key]@` in place of user and password, `?[key]` in place of
    query and fragment, if it has them."""
    parts = urlsplit(url)
    user = f"{KEY}@" if "@" in parts.netloc else ""
    rest = f"?{KEY}" if parts.query or parts.fragment else ""
    return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}{rest}"


def known_forms() -> tuple[bytes, ...]:
    """Return the keys in use in every encoded form that is searched for, longest first."""
    return _key_forms(tuple(keys_in_use()))


def keys_in_use(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the name of the holder by key in use: an environment variable whose name has a word
    such as KEY or TOKEN, or `the Hub's token`.

    A value with commas also counts part by part. Values of fewer than 8 characters, plain numbers,
    paths and placeholders are left out. With `environment` given, only it is read and no token of
    the Hub.
    """
    here = os.environ if environment is None else environment
    holders = {}
    for name, value in here.items():
        if not _NAMES.isdisjoint(name.upper().split("_")):
            holders.update({part: name for part in (value, *value.split(",")) if _is_key(part)})
    if environment is None and (token := _hub_token()):
        holders[token] = "the Hub's token"
    return holders


def _is_key(value: str) -> bool:
    return len(value) >= SHORTEST and not _NO_KEY.fullmatch(value)


def _hub_token() -> str | None:
    """Return the token that `hf auth login` stored, or None."""
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    token_file = Path(os.environ.get("HF_TOKEN_PATH") or f"{home}/token").expanduser()
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return token if _is_key(token) else None


@lru_cache(maxsize=8)
def _key_forms(values: tuple[str, ...]) -> tuple[bytes, ...]:
    forms = {
        form.encode("utf-8", "surrogatepass") for value in values for form in _encoded_forms(value)
    }
    return tuple(sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True))


def _encoded_forms(value: str) -> Iterator[str]:
    """Yield a value as it is and as JSON, nested JSON, addresses and base64 encode it."""
    yield value
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once)[1:-1]
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)
    for lead in range(3):  # base64 of anything that ends in the value, as user:password does
        data = b"x" * lead + value.encode("utf-8", "surrogatepass")
        aligned = data[: len(data) // 3 * 3]
        code = base64.b64encode(aligned).decode()[(0, 2, 3)[lead] :]
        if len(code) >= 2 * SHORTEST or len(code) >= len(value):
            yield code
            yield code.replace("+", "-").replace("/", "_")


@lru_cache(maxsize=8)
def _wrapped_patterns(values: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    between = r"(?:\s|\\+[nrt])*"
    return tuple(re.compile(between.join(map(re.escape, value))) for value in values)


@cache
def _key_patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(_START + pattern) for _, _, pattern in PATTERNS)


@cache
def _root_folders() -> frozenset[str]:
    return frozenset(path.name for path in Path("/").iterdir() if path.is_dir())


def _hide_folders(match: re.Match[str]) -> str:
    """Return an empty text for the folders of a path of this machine, other matches unchanged."""
    first = match[0].split("/")[1]
    return "" if match[0].startswith("~") or first in _root_folders() else match[0]
