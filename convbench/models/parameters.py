"""The request parameters of one model, and what a provider's refusal means for them and the run.

Providers say one thing in many ways. Google says "check your plan and billing details" of a limit a
minute, which is over in a second; xAI refuses a text by status 403, as others refuse a key:

    read_refusal("xai/grok", 403, b'{"code": "denied", "error": "violates usage guidelines"}', {})
    -> FatalModelError("xai/grok: HTTP 403: violates usage guidelines (denied); the provider's
       filter refused", stops_run=False)

A body's codes decide first, then its words, and the status last: the tables below.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.schema import Message, Sampling
from convbench.schema.reasoning import Reads
from convbench.util.redact import redact_text
from convbench.util.untrusted import loads
from convbench.util.words import Structured
from convbench.views import without_system

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
SEEDS = 2**31
"""A seed is sent modulo this number: some providers take a signed 32-bit integer alone."""
LONGEST_WAIT_S = 3600.0
"""Longest wait that a provider can request; the engine has a shorter limit of its own."""

_CREDIT = "the account has no credit left, or reached a limit that lasts"
_TOO_LONG = "the conversation is longer than the model's context"
_FILTERED = "the provider's filter refused"
_CODES: tuple[tuple[Meaning, str, str], ...] = (
    ("wait", "", "openrouter_in_flight_budget json_validate_failed throttlingexception "
                 "modelnotreadyexception 1302 1303 1305 1312"),
    ("stop", _CREDIT, "insufficient_quota credit_balance_exhausted billing_error arrearage "
                      "organization_spend_limit_exceeded project_spend_limit_exceeded "
                      "organization_usage_limit_exceeded enforced_spend_limit_reached "
                      "exceeded_current_quota_error allocationquota.freetieronly 1112 1113 1121 "
                      "1304 1308 1310"),
    ("stop", "", "invalid_api_key api_key_invalid failed_precondition accessdeniedexception "
                 "requestexpired 1220"),
    ("stop", "is the model's name right?", "model_not_found deploymentnotfound 1211"),
    ("conversation", "", "string_above_max_length weight_exceeds_budget"),
    ("conversation", _FILTERED, "invalid_prompt 1301"),
    ("conversation", _TOO_LONG, "1261"),
)  # fmt: skip
"""(meaning, what to say, codes in lower case), whatever the status; the numbers are Zhipu's."""
_WORDS: tuple[tuple[Meaning, str, tuple[int, ...], str], ...] = (
    ("stop", _CREDIT, (429,), r"per ?day|\blimit: 0\b|(?:/|\bper|\ba|\bthis) ?month\b"),
    ("conversation", _TOO_LONG, (400, 403, 422, 500),
     r"context[ _](?:length|window|size)|maximum context|prompt is too long|too many tokens"
     r"|model token limit|input is too long|longer than the maximum"),
    ("conversation", _FILTERED, (400, 403, 422),
     r"polic(?:y|ies)|usage (?:guideline|rule)|safety|unsafe|moderation|content[ _-]?filter"
     r"|content exists risk|high risk|inappropriate|data_?inspection|\bflagged\b|was filtered"
     r"|repetitive patterns"),
    ("conversation", "give a larger --max-tokens, or `headroom:` in models.yaml", (400,),
     r"output limit was reached"),
    ("stop", _CREDIT, (400,), r"\bcredit|api usage limits|no (?:active )?subscription"),
    ("stop", "", (400,), r"\bapi key\b"),
)  # fmt: skip
"""(meaning, what to say, statuses, words of the refusal or of its codes). The last but one to a
quota that is spent, the last to a key, which some providers refuse by 400."""
_STATUS: dict[int, tuple[Meaning, str]] = {
    **dict.fromkeys((400, 422), ("unclear", "")),
    **dict.fromkeys((408, 409, 425, 429, 498), ("wait", "")),
    **dict.fromkeys((301, 302, 303, 307, 308), (
        "stop", "no redirect is followed with a key; give the address that answers with --api-base"
    )),
    402: ("stop", _CREDIT),
    404: ("stop", "is the model's name right?"),
    413: ("conversation", ""),
}  # fmt: skip
"""Meaning of a status and what to say; of all others those from 500 on wait, and the rest stop."""
_TOKENS = re.compile(r"\blimit:? (\d+).{0,40}?\brequested:? (\d+)", re.IGNORECASE | re.DOTALL)
"""Most tokens of a request or a minute, and those of this request."""
_NO_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)s? (?:is |are )?not (?:supported|allowed|enabled)"
    r"|developer instruction is not enabled|only user and assistant roles|roles must alternate",
    re.IGNORECASE,
)
_NAMES = ("code", "type", "status", "error_code", "reason", "quotaId", "limit_source")
"""Fields of an error that hold a word for it."""
_TEXTS = ("message", "msg", "detail", "error", "raw", "param", "")
"""Fields of an error that hold words for people; "" is an item of a list."""


class UnclearRefusal(FatalModelError):
    """A refusal of which nobody knows whether it concerns this prompt or every request."""


def read_refusal(
    ref: str,
    status: int,
    body: Any,
    headers: Mapping[str, str],
    key_variable: str = "",
    quota_is_a_rate: bool = False,
) -> ModelError:
    """Return, without raising it, the error for a reply that is no completion. `headers` ignore
    case; the body is parsed JSON or bytes: JSON in one of the usual forms, else text.

    It is a TransientModelError where another try may help, a FatalModelError that stops the run
    where every call would be refused, and one that does not where this prompt is. `quota_is_a_rate`
    says that `insufficient_quota` is a limit a minute (Alibaba).
    """
    found = _fields_of(body.decode("utf-8", "replace") if isinstance(body, bytes) else body)
    names = [value for name, value in found if name in _NAMES]
    text = "; ".join(dict.fromkeys(value for name, value in found if name in _TEXTS))
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:1000]).split())
    text = redact_text(text + "".join(f" ({name[:60]})" for name in names[:2] if name not in text))
    codes = {name.lower() for name in names}
    status = next((int(c) for c in codes if re.fullmatch("[45][0-9][0-9]", c)), status)
    meaning, why = _meaning_of(status, text, codes)
    if quota_is_a_rate and "insufficient_quota" in codes:
        meaning = "wait"
    line = f"{ref}: HTTP {status}" + (f": {text[:300]}" if text else "")
    if meaning == "wait":
        delay = next((value for name, value in found if name == "retryDelay"), "")
        wait = _retry_after(headers, delay)
        limited = status == 429 or wait is not None
        return TransientModelError(line, retry_after=wait, rate_limited=limited)
    if meaning == "unclear":
        return UnclearRefusal(line, stops_run=False)
    if meaning == "stop" and not why:
        why = f"the key in {key_variable} was refused; set it to one that may use this model"
    return FatalModelError(f"{line}; {why}" if why else line, stops_run=meaning == "stop")


def _fields_of(body: Any) -> list[tuple[str, str]]:
    """Return (name, value) of an error's texts and numbers, outer ones first; JSON within a text is
    read too."""
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


def _retry_after(headers: Mapping[str, str], delay: str) -> float | None:
    """Return the seconds to wait: by `retry-after-ms`, Retry-After (seconds or a date) or Google's
    `retryDelay` ("46s"); None without any."""
    said, thousandths = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    for text, unit in ((thousandths, 1000), (said, 1), (delay.removesuffix("s"), 1)):
        with suppress(ValueError):
            return min(max(0.0, float(text) / unit), LONGEST_WAIT_S)
    with suppress(ValueError, OverflowError):
        until = parsedate_to_datetime(said).timestamp()
        return min(max(0.0, until - time.time()), LONGEST_WAIT_S)
    return None


def to_stderr(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr)


class Parameters:
    """The parameters of a model's requests: its alias's settings, and what it refused so far."""

    def __init__(
        self,
        ref: str,
        *,
        drop: Iterable[str] = (),
        headroom: int = 0,
        limit: str = "max_tokens",
        reads: Reads = "field",
        extra_body: Mapping[str, Any] | None = None,
        structured: Structured = "text",
        note: Note = to_stderr,
    ) -> None:
        """`limit` is the name under which the most tokens of a reply are sent."""
        self.ref, self.headroom, self.limit = ref, headroom, limit
        self.reads, self.extra_body = reads, dict(extra_body or {})
        self.structured: Structured = structured
        self._left_out, self._noted = set(drop), set[str]()
        self._folds_system = False
        self._note = note

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings on which a reply depends besides messages and sampling."""
        names = ("headroom", "reads", "extra_body", "structured")
        return {name: getattr(self, name) for name in names}

    def request_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the fields of a chat request for `sampling`, without messages and `extra_body`.

        They are the most tokens of the reply (headroom added), the parameters that are set, tools
        and the reply's schema. What the model refuses is left out, which is noted once.
        """
        out: dict[str, Any] = {self.limit: sampling.max_tokens + self.headroom}
        for name in DROPPABLE:
            value = getattr(sampling, name)
            if value is not None and name in self._left_out:
                self._note_once(f"{name}; it is not sent")
            elif value is not None:
                out[name] = value % SEEDS if name == "seed" else value
        if sampling.tools:
            out["tools"] = list(sampling.tools)
        if sampling.reply_schema is not None and self.structured == "json_schema":
            named = {"name": "evaluation", "strict": True, "schema": sampling.reply_schema}
            out["response_format"] = {"type": "json_schema", "json_schema": named}
        return out

    def fit_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages; once the model has refused a system message, with the system prompt
        in the first user message, as in training with such a template."""
        return without_system(messages) if self._folds_system else messages

    def learn(self, refusal: ModelError, sent: Mapping[str, Any]) -> bool:
        """Leave out from now on what a refusal refuses; return True if it was in the request
        `sent`, so that another try may help.

        That is the system message, the first parameter that the refusal names, the older name of
        `max_completion_tokens`, or the reply's schema where it names nothing else.
        """
        text = str(refusal).partition("HTTP ")[2]
        if sent["messages"][0]["role"] == "system" and _NO_SYSTEM.search(text):
            self._folds_system = True
            self._note_once("system messages; the system prompt is put into the first user message")
            return True
        if not isinstance(refusal, UnclearRefusal):
            return False
        for name, pattern in DROPPABLE.items():
            if name in sent and re.search(pattern, text, re.IGNORECASE):
                self._left_out.add(name)
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
            self._note(f"note: {self.ref} does not support {what}")


def unsent_names(sampling: Sampling, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parameters that are set in `sampling` and are no key of a request."""
    return tuple(
        name for name in DROPPABLE if getattr(sampling, name) is not None and name not in sent
    )
