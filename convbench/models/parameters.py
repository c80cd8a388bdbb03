"""The request parameters of one model, and what a provider's refusal means for them and the run.

Google says "check your billing details" of a limit a minute; xAI refuses a text by status 403:

    read_refusal("xai/grok", 403, b'{"code": "denied", "error": "violates usage guidelines"}', {})
    -> FatalModelError("xai/grok: HTTP 403: violates usage guidelines (denied); the provider's
       filter refused", stops_run=False)

A body's codes decide first, then its words, and the status last: the tables below.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.schema import Sampling
from convbench.schema.reasoning import Reads
from convbench.util.redact import redact_text
from convbench.util.untrusted import loads
from convbench.util.words import Structured

Note = Callable[[str], None]
Meaning = Literal["wait", "conversation", "stop", "unclear"]
"""Another try may help; this conversation ends; the run stops; a parameter, or this prompt."""

DROPPABLE = {
    "temperature": r"\btemperature\b",
    "top_p": r"\btop_?p\b",
    "seed": r"\bseed\b",
    "tool_choice": r"\btool_?choice\b",
    "reasoning_effort": r"\breasoning_effort\b|\bthinking|\boutput_config|\beffort\b",
}
"""Parameters without which a model still answers the same question → the names that refusals give
them, those of the providers' own APIs too."""

_CREDIT = "the account has no credit left, or reached a limit that lasts"
_TOO_LONG = "the conversation is longer than the model's context"
_FILTERED = "the provider's filter refused"
_MODEL = "is the model's name right?"
_CUT = "give a larger --max-tokens, or `headroom:` in models.yaml"
_MOVED = "no redirect is followed; give the address that answers with --api-base"
_CODES: tuple[tuple[Meaning, str, str], ...] = (
    ("wait", "", "openrouter_in_flight_budget json_validate_failed throttlingexception"),
    ("wait", "", "modelnotreadyexception 1302 1303 1305 1312"),
    ("stop", _CREDIT, "insufficient_quota credit_balance_exhausted billing_error arrearage"),
    ("stop", _CREDIT, "organization_spend_limit_exceeded project_spend_limit_exceeded"),
    ("stop", _CREDIT, "organization_usage_limit_exceeded enforced_spend_limit_reached"),
    ("stop", _CREDIT, "exceeded_current_quota_error allocationquota.freetieronly"),
    ("stop", _CREDIT, "1112 1113 1121 1304 1308 1310"),
    ("stop", "", "invalid_api_key api_key_invalid failed_precondition accessdeniedexception"),
    ("stop", "", "requestexpired 1220"),
    ("stop", _MODEL, "model_not_found deploymentnotfound 1211"),
    ("conversation", "", "string_above_max_length weight_exceeds_budget"),
    ("conversation", _FILTERED, "invalid_prompt 1301"),
    ("conversation", _TOO_LONG, "1261"),
)
"""(meaning, what to say, codes in lower case), whatever the status; the numbers are Zhipu's."""
_LONG = (
    r"context[ _](?:length|window|size)|maximum context|prompt is too long|too many tokens"
    r"|model token limit|input is too long|longer than the maximum"
)
_REFUSED = (
    r"polic(?:y|ies)|usage (?:guideline|rule)|safety|unsafe|moderation|content[ _-]?filter"
    r"|content exists risk|high risk|inappropriate|data_?inspection|\bflagged\b|was filtered"
    r"|repetitive patterns"
)
_WORDS: tuple[tuple[Meaning, str, tuple[int, ...], str], ...] = (
    ("unclear", "", (400, 422), r"\bschema|response_format"),
    ("stop", _CREDIT, (429,), r"per ?day|\blimit: 0\b|(?:/|\bper|\ba|\bthis) ?month\b"),
    ("conversation", _TOO_LONG, (400, 403, 422, 500), _LONG),
    ("conversation", _FILTERED, (400, 403, 422), _REFUSED),
    ("conversation", _CUT, (400,), r"output limit was reached"),
    ("stop", _CREDIT, (400,), r"\bcredit|\bbilling|api usage limits"),
    ("stop", "", (400,), r"\bapi[ _-]?key\b"),
)
"""(meaning, what to say, statuses, words of a refusal or of its codes), the first that fits."""
_STATUS: dict[int, tuple[Meaning, str]] = {
    **dict.fromkeys((400, 422), ("unclear", "")),
    **dict.fromkeys((408, 409, 425, 429, 498), ("wait", "")),
    **dict.fromkeys(range(301, 309), ("stop", _MOVED)),
    402: ("stop", _CREDIT),
    404: ("stop", _MODEL),
    413: ("conversation", ""),
}
"""Meaning of a status and what to say; of all others those from 500 on wait, and the rest stop."""
_TOKENS = re.compile(r"\blimit:? (\d+).{0,40}?\brequested:? (\d+)", re.IGNORECASE)
"""Most tokens of a request or a minute, and those of this request."""
_NO_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)s? (?:is |are )?not (?:supported|allowed|enabled)"
    r"|developer instruction is not enabled|only user and assistant roles|roles must alternate",
    re.IGNORECASE,
)
_NAMES = ("code", "type", "status", "error_code", "reason", "quotaId", "limit_source")
_TEXTS = ("message", "msg", "detail", "error", "raw", "param", "")  # "" is an item of a list


class UnclearRefusal(FatalModelError):
    """A refusal of which nobody knows whether it concerns this prompt or every request."""


def read_refusal(
    ref: str, status: int, body: Any, headers: Mapping[str, str], key: str = "", rate: bool = False
) -> ModelError:
    """Return, without raising it, the error for a reply that is no completion: a
    TransientModelError where another try may help, else a FatalModelError. The body is JSON or
    bytes; `key` names its variable; with `rate` `insufficient_quota` is a limit a minute."""
    found = _fields_of(body.decode("utf-8", "replace") if isinstance(body, bytes) else body)
    names = [value for name, value in found if name in _NAMES]
    text = "; ".join(dict.fromkeys(value for name, value in found if name in _TEXTS))
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:1000]).split())
    text = redact_text(text + "".join(f" ({name[:60]})" for name in names[:2] if name not in text))
    codes = {name.lower() for name in names}
    status = next((int(code) for code in codes if re.fullmatch("[45][0-9][0-9]", code)), status)
    meaning, why = _meaning_of(status, text, codes)
    line = f"{ref}: HTTP {status}" + (f": {text[:300]}" if text else "")
    if meaning == "wait" or (rate and "insufficient_quota" in codes):
        wait = _retry_after({**dict(found), **{name.lower(): headers[name] for name in headers}})
        limited = status == 429 or wait is not None
        return TransientModelError(line, retry_after=wait, rate_limited=limited)
    if meaning == "unclear":
        return UnclearRefusal(line, stops_run=False)
    if meaning == "stop" and not why:
        why = f"the key in {key} was refused; set it to one that may use this model"
    return FatalModelError(f"{line}; {why}" if why else line, stops_run=meaning == "stop")


def _fields_of(body: Any) -> list[tuple[str, str]]:
    """Return (name, value) of an error's texts and numbers, outer ones first; JSON within a text is
    read too, and HTML is empty."""
    found, waiting = list[tuple[str, str]](), [("", body)]
    for name, value in waiting:  # which grows on the way
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            with suppress(ValueError):
                value = loads(value.encode("utf-8", "replace"))
        if isinstance(value, list):
            waiting += [("", item) for item in value[:5]]
        elif isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, str | int) and not isinstance(value, bool):
            found.append((name, "" if str(value).lstrip()[:1] == "<" else str(value)))
    return found


def _meaning_of(status: int, text: str, codes: set[str]) -> tuple[Meaning, str]:
    for meaning, why, known in _CODES:
        if not codes.isdisjoint(known.split()):
            return meaning, why
    asked = _TOKENS.search(text)
    if asked and status in (413, 429):
        return ("conversation" if int(asked[2]) > int(asked[1]) else "wait"), ""
    words = " ".join((text, *codes))
    for meaning, why, statuses, pattern in _WORDS:
        if status in statuses and re.search(pattern, words, re.IGNORECASE):
            return meaning, why
    return _STATUS.get(status, ("wait" if status >= 500 else "stop", ""))


def _retry_after(said: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1), ("retryDelay", 1)):
        with suppress(ValueError):
            return max(0.0, float(said.get(name, "").removesuffix("s")) / unit)
    return None


def to_stderr(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr)


@dataclass(eq=False)
class Parameters:
    """The parameters of a model's requests: its alias's settings, and what it refused so far."""

    ref: str
    drop: set[str] = field(default_factory=set)
    """Names that are not sent, which is noted once."""
    headroom: int = 0
    limit: str = "max_tokens"
    """Name under which the most tokens of a reply are sent."""
    reads: Reads = "field"
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    structured: Structured = "text"
    note: Note = to_stderr
    _noted: set[str] = field(default_factory=set)
    folds_system: bool = False
    """Whether the system prompt goes into the first user message, as in training with a template
    that has no place for it."""

    def request_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return a request's fields for `sampling`: tokens (headroom added), parameters, tools and
        the reply's schema."""
        out: dict[str, Any] = {self.limit: sampling.max_tokens + self.headroom}
        for name in DROPPABLE:
            value = getattr(sampling, name)
            if value is not None and name in self.drop:
                self._note_once(f"{name}; it is not sent")
            elif value is not None:
                # some providers take a signed 32-bit integer alone
                out[name] = value % 2**31 if name == "seed" else value
        if sampling.tools:
            out["tools"] = list(sampling.tools)
        if sampling.reply_schema is not None and self.structured == "json_schema":
            named = {"name": "evaluation", "strict": True, "schema": sampling.reply_schema}
            out["response_format"] = {"type": "json_schema", "json_schema": named}
        return out

    def learn(self, refusal: ModelError, sent: Mapping[str, Any]) -> bool:
        """Leave out from now on what a refusal of the request `sent` names, or the reply's schema
        if it names nothing; return True if another try may help."""
        text = str(refusal).partition("HTTP ")[2]
        if sent["messages"][0]["role"] == "system" and _NO_SYSTEM.search(text):
            self.folds_system = True
            self._note_once("system messages; the system prompt is put into the first user message")
            return True
        if not isinstance(refusal, UnclearRefusal):
            return False
        for name, pattern in DROPPABLE.items():
            if name in sent and re.search(pattern, text, re.IGNORECASE):
                self.drop.add(name)
                return True
        if "max_tokens" in sent and "max_completion_tokens" in text:
            self.limit = "max_completion_tokens"
            return True
        if "response_format" in sent:
            self.structured = "text"
            self._note_once("JSON schema of its reply; it is not sent")
            return True
        return False

    def _note_once(self, what: str) -> None:
        if what not in self._noted:
            self._noted.add(what)
            self.note(f"note: {self.ref} does not support {what}")


def unsent_names(sampling: Sampling, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parameters that are set in `sampling` and are no key of a request."""
    return tuple(
        name for name in DROPPABLE if getattr(sampling, name) is not None and name not in sent
    )
