"""What a provider's refusal means: wait, leave this conversation, or stop the run.

Providers say one thing in many ways. OpenAI says that there is no credit left by status 429 and the
code `insufficient_quota`; Google says "check your plan and billing details" of a limit a minute,
which is over in a second; xAI refuses a text by status 403, as others refuse a key:

    read_refusal(403, b'{"code": "permission-denied", "error": "violates usage guidelines"}', {})
    -> Refusal(status=403, text="violates usage guidelines (permission-denied)", ...)
    meaning_of(...) -> "conversation"

A body's codes and types decide first, then its words, and the status last. A refusal of which
nothing is known is `unclear`: a parameter may be refused (`parameters.py`), or this one prompt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.util.redact import redact_text
from convbench.util.untrusted import loads, safe_text

Meaning = Literal["wait", "conversation", "stop", "unclear"]
"""Another try may help; this conversation ends; the run stops; a parameter, or this prompt."""

NO_CREDIT = frozenset(
    {
        "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded", "organization_usage_limit_exceeded", "billing_error",
        "enforced_spend_limit_reached", "exceeded_current_quota_error", "arrearage",
        "allocationquota.freetieronly", "1112", "1113", "1121", "1304", "1308", "1310",
    }
)  # fmt: skip
"""Codes of an account without credit; the numbers are Zhipu's."""
STOPS = NO_CREDIT | {
    "invalid_api_key", "api_key_invalid", "failed_precondition", "model_not_found",
    "deploymentnotfound", "accessdeniedexception", "requestexpired", "ftuformnotfilled",
    "1211", "1220",
}  # fmt: skip
"""Codes that every further call would get."""
CONVERSATION = frozenset(
    {
        "invalid_prompt", "content_filter", "responsibleaipolicyviolation", "datainspectionfailed",
        "data_inspection_failed", "context_length_exceeded", "string_above_max_length",
        "exceed_context_size_error", "request_too_large", "weight_exceeds_budget", "1301", "1261",
    }
)  # fmt: skip
"""Codes that concern one prompt, and any that ends in `_policy` or `policy_violation`."""
WAITS = frozenset(
    {
        "openrouter_in_flight_budget", "json_validate_failed", "throttlingexception",
        "modelnotreadyexception", "1302", "1303", "1305", "1312",
    }
)  # fmt: skip
"""Codes that another try may not get, whatever the status."""
LASTING = re.compile(
    r"PerDay|per day|\blimit: 0\b|/ ?month|(?:per|a|monthly) month|month'?s", re.IGNORECASE
)
"""A limit that is not over in minutes, or that is nothing at all."""
ACCOUNT = re.compile(
    r"credit balance|available credits|spending limit|api usage limits|incorrect api key"
    r"|invalid api key|no (?:active )?subscription",
    re.IGNORECASE,
)
TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|maximum context|prompt is too long|too many tokens"
    r"|model token limit|input is too long|longer than the maximum",
    re.IGNORECASE,
)
FILTERED = re.compile(
    r"usage (?:polic|guideline|rule)|safety[ _](?:check|system)|content[ _-](?:filter|polic|manag)"
    r"|content exists risk|considered high risk|inappropriate content|\bflagged\b"
    r"|repetitive patterns|was filtered",
    re.IGNORECASE,
)
CUT = re.compile(r"model output limit was reached", re.IGNORECASE)
"""All tokens went into reasoning."""
TOKENS = re.compile(r"\blimit:? (\d+).{0,40}?\brequested:? (\d+)", re.IGNORECASE | re.DOTALL)
"""Most tokens of a request or a minute, and those of this request."""
RETRY = re.compile(
    r"(?:retry|try again) (?:in|after) (\d+(?:\.\d+)?) ?(ms|s|seconds?|m|minutes?)?\b",
    re.IGNORECASE,
)
UNITS = {"ms": 1e-3, "m": 60.0, "minute": 60.0, "minutes": 60.0}
LONGEST_WAIT_S = 3600.0
"""Longest wait that a provider can request; the engine has a shorter limit of its own."""
NAMES = ("code", "type", "status", "error_code", "reason", "quotaId", "limit_source")
"""Fields of an error that hold a word for it."""
TEXTS = ("message", "msg", "detail", "error", "raw")
"""Fields of an error that hold words for people."""


class UnclearRefusal(FatalModelError):
    """A refusal of which nobody knows whether it concerns this prompt or every request."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply that is no completion."""

    status: int
    """HTTP status; the one that the body names, if it names one."""
    text: str
    """The provider's words on one line, keys redacted, at most 300 characters."""
    names: frozenset[str] = frozenset()
    """Codes, types and reasons in the body, in lower case."""
    param: str | None = None
    """The parameter that is refused, if the body names one."""
    retry_after: float | None = None
    """Seconds to wait, from 0 to 3600, if the provider says."""


def read_refusal(status: int, raw: bytes, headers: Mapping[str, str]) -> Refusal:
    """Return the refusal in a reply's status, body and headers (which ignore case).

    The body is JSON in one of the usual forms, else its own text; HTML gives no text.
    """
    try:
        body = loads(raw)
    except ValueError:
        text = raw.decode("utf-8", "replace")
        body = {"message": "" if text.lstrip()[:1] == "<" else text}
    return refusal_in(status, body, headers)


def refusal_in(status: int, body: Any, headers: Mapping[str, str]) -> Refusal:
    """Return the refusal in a reply's status, parsed body and headers."""
    found = list(_iter_fields(body))
    texts = dict.fromkeys(str(value) for name, value in found if name in TEXTS)
    words = [str(value) for name, value in found if name in NAMES]
    params = [str(value) for name, value in found if name in ("param", "loc")]
    text = " ".join("; ".join(texts).split())
    text += "".join(f" ({word})" for word in [*words, *params][:2] if word not in text)
    text = redact_text(
        safe_text("".join(c if c.isprintable() else "?" for c in text[:400]).strip())
    )
    named = [int(word) for word in words if word.isascii() and word.isdecimal()]
    status = next((number for number in named if 400 <= number < 600), status)
    delay = next((str(value) for name, value in found if name == "retryDelay"), "")
    return Refusal(
        status,
        text if len(text) <= 300 else text[:297] + "...",
        frozenset(word.lower() for word in words),
        params[0] if params else None,
        retry_after(headers, f"retry in {delay}; {text}"),
    )


def _iter_fields(value: Any, depth: int = 9) -> Iterator[tuple[str, str | int]]:
    """Yield (name, value) of an error's telling fields, outer ones first, nested ones too."""
    if depth == 0:
        return
    if isinstance(value, list):
        for item in value[:5]:
            yield from _iter_fields(item, depth - 1)
    if isinstance(value, str):
        yield "message", value
    for name, item in value.items() if isinstance(value, dict) else ():
        if name == "raw" and isinstance(item, str) and item.lstrip()[:1] == "{":
            yield from _iter_fields(_json_or_none(item), depth - 1)
        elif isinstance(item, str | int) and not isinstance(item, bool):
            yield name, item
        elif name == "loc" and isinstance(item, list):
            yield name, str(item[-1]) if item else ""
    for item in value.values() if isinstance(value, dict) else ():
        if isinstance(item, dict | list):
            yield from _iter_fields(item, depth - 1)


def _json_or_none(text: str) -> Any:
    try:
        return loads(text.encode("utf-8", "replace"))
    except ValueError:
        return None


def retry_after(headers: Mapping[str, str], text: str = "") -> float | None:
    """Return the seconds to wait, from 0 to 3600: by `retry-after-ms`, by Retry-After (seconds or a
    date), else by words such as "retry in 46s"; None without any."""
    named = headers.get("retry-after-ms"), headers.get("retry-after", headers.get("Retry-After"))
    seconds: float | None = None
    try:
        if named[0]:
            seconds = float(named[0]) / 1000
        elif named[1]:
            seconds = float(named[1])
    except ValueError:
        seconds = _seconds_until(str(named[1]))
    if seconds is None and (match := RETRY.search(text)):
        seconds = float(match[1]) * UNITS.get((match[2] or "s").lower(), 1.0)
    return None if seconds is None else min(max(0.0, seconds), LONGEST_WAIT_S)


def _seconds_until(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def meaning_of(refusal: Refusal, *, quota_is_a_rate: bool = False) -> Meaning:
    """Return what a refusal means for the run.

    `quota_is_a_rate`: at this provider (Alibaba) `insufficient_quota` is a limit a minute.
    """
    status, names, text = refusal.status, refusal.names, refusal.text
    stops = STOPS - ({"insufficient_quota"} if quota_is_a_rate else set())
    asked = TOKENS.search(text)
    if names & WAITS:
        return "wait"
    if asked and status in (413, 429):
        return "conversation" if int(asked[2]) > int(asked[1]) else "wait"
    if names & stops:
        return "stop"
    if names & CONVERSATION or any(n.endswith(("_policy", "policy_violation")) for n in names):
        return "conversation"
    if status == 429:
        lasts = LASTING.search(text) or any(LASTING.search(name) for name in names)
        return "stop" if lasts else "wait"
    if status == 402 or (status in (400, 401, 403) and ACCOUNT.search(text)):
        return "stop"
    one = TOO_LONG.search(text) or (status < 500 and (FILTERED.search(text) or CUT.search(text)))
    if status == 413 or (status in (400, 403, 422, 500) and one):
        return "conversation"
    if status in (408, 409, 425, 498) or status >= 500:
        return "wait"
    return "unclear" if status in (400, 422) else "stop"


def refusal_error(
    ref: str, refusal: Refusal, key_variable: str, quota_is_a_rate: bool = False
) -> ModelError:
    """Return, without raising it, the error for a refusal.

    It is a TransientModelError where another try may help, and a FatalModelError that stops the run
    where every call would be refused. An unclear refusal concerns its own conversation.
    """
    meaning = meaning_of(refusal, quota_is_a_rate=quota_is_a_rate)
    status, text = refusal.status, refusal.text
    said = f"HTTP {status}" + (f": {text}" if text else "")
    if meaning == "wait":
        limited = status == 429 or refusal.retry_after is not None
        return TransientModelError(
            f"{ref}: {said}", retry_after=refusal.retry_after, rate_limited=limited
        )
    if meaning == "stop":
        return FatalModelError(f"{ref}: {said}; {_advice(refusal, key_variable)}")
    line = f"{ref}: {said}"
    if meaning == "unclear":
        # what is left of a parameter that no request can do without
        stops = "unsupported_parameter" in refusal.names
        return FatalModelError(line) if stops else UnclearRefusal(line, stops_run=False)
    if CUT.search(text):
        line += "; give a larger --max-tokens, or `headroom:` in models.yaml"
    elif status == 413 or TOO_LONG.search(text):
        line = f"{ref}: the conversation is longer than the model's context: {said}"
    elif FILTERED.search(text):
        line = f"{ref}: the provider's filter refused: {said}"
    return FatalModelError(line, stops_run=False)


def _advice(refusal: Refusal, key_variable: str) -> str:
    """Return what to do about a refusal that stops the run."""
    if refusal.status in (402, 429) or refusal.names & NO_CREDIT:
        return "the account has no credit left, or reached a limit that lasts"
    if 300 <= refusal.status < 400:
        return "no redirect is followed with a key; give the address that answers with --api-base"
    if refusal.status == 404:
        return "is the model's name right?"
    return (
        f"the key in {key_variable} was refused; set {key_variable} to one that may use this model"
    )
