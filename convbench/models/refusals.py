"""What a provider's error means: wait, give up this conversation, or stop the run."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from convbench.errors import FatalModelError, ModelError, TransientModelError

_TOO_LONG = re.compile(
    r"context[ _]length|context window|maximum context|prompt is too long|too many tokens"
    r"|longer than the maximum|input is too long|exceeds? the (?:model'?s )?max",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"unsupported|not support|does not allow|deprecated|unrecognized|unknown (?:param|field|arg)"
    r"|extra inputs are not permitted|not permitted|may only be|must be (?:unset|omitted|1)",
    re.IGNORECASE,
)
_NO_SYSTEM = re.compile(
    r"system (?:role|message|prompt)s? (?:is |are )?not (?:supported|allowed)"
    r"|developer instruction is not enabled|only user and assistant roles|roles must alternate",
    re.IGNORECASE,
)
_FILTER = re.compile(r"content[ _](?:filter|policy|management)|safety system", re.IGNORECASE)
_NO_MONEY = re.compile(r"insufficient_quota|credit balance|billing|payment", re.IGNORECASE)
_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|hf|key|AIza)[-_A-Za-z0-9*]{12,}")
WAIT = (408, 409, 425, 429)
"""Statuses below 500 after which another try may help."""


def refused_parameter(status: int, text: str) -> bool:
    """Return whether a reply refuses a request's parameter, or its system message."""
    return (status in (400, 422) and bool(_REFUSED.search(text))) or refused_system(status, text)


def refused_system(status: int, text: str) -> bool:
    """Return whether a reply says that the model's chat template takes no system message."""
    return status in (400, 422, 500) and bool(_NO_SYSTEM.search(text))


def failure(
    ref: str,
    status: int,
    text: str,
    headers: Mapping[str, str],
    *,
    key_variable: str,
    hint: str = "",
    answered: bool = False,
) -> ModelError:
    """Return the error of a reply that is not 200.

    `answered` says whether this model has answered before: an unexplained refusal then concerns
    this conversation only, and otherwise stops the run. `hint` goes with an unknown model.
    """
    said = f"HTTP {status}" + (f": {text}" if text else "")
    if status in (401, 403):
        return FatalModelError(
            f"{ref}: HTTP {status}: the key in {key_variable} was refused; set {key_variable} to "
            "a key that may use this model"
        )
    if status == 402 or (status == 429 and _NO_MONEY.search(text)):
        return FatalModelError(f"{ref}: {said}; the account has no credit left")
    if status in WAIT or status >= 500:
        return TransientModelError(
            f"{ref}: {said}", retry_after=retry_after(headers), rate_limited=status == 429
        )
    if status == 413 or _TOO_LONG.search(text):
        line = f"{ref}: the conversation is longer than the model's context: {said}"
        return FatalModelError(line, stops_run=False)
    if _FILTER.search(text):
        return FatalModelError(f"{ref}: the provider's filter refused: {said}", stops_run=False)
    if status == 404:
        return FatalModelError(f"{ref}: {said}; is the model's name right{hint}?")
    return FatalModelError(f"{ref}: {said}", stops_run=not answered)


def message(raw: bytes) -> str:
    """Return the text of an error body on one line, keys blotted out, at most 300 characters."""
    try:
        text = _dig(orjson.loads(raw))
    except orjson.JSONDecodeError:
        text = re.sub(r"<[^>]*>", " ", raw.decode("utf-8", "replace"))
    text = _KEY.sub("[key]", " ".join(text.split()))
    return text if len(text) <= 300 else text[:297] + "..."


def _dig(body: Any) -> str:
    """Return message, code and parameter of the usual shapes of error bodies."""
    if isinstance(body, dict):
        inner = body.get("error", body.get("detail"))
        if isinstance(inner, dict | list):
            return _dig(inner)
        parts = [inner, body.get("message"), body.get("msg")]
        text = " ".join(str(part) for part in parts if part)
        for name in ("code", "param", "loc"):
            value = str(body.get(name) or "")
            if value and value not in text:
                text += f" ({value})"
        return text
    if isinstance(body, list):
        return "; ".join(_dig(part) for part in body[:3])
    return str(body)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, given in milliseconds, seconds or as a date."""
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("Retry-After") or headers.get("retry-after")
    try:
        if milliseconds:
            return max(0.0, float(milliseconds) / 1000)
        return max(0.0, float(value)) if value else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(str(value)).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
