"""Interpret a provider's errors (wait, give up the conversation, or stop the run), and learn from
refusals which parameters a model takes.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.net.untrusted_json import loads
from convbench.schema import Message, Sampling
from convbench.schema.reasoning import Reads
from convbench.util.redact import redact_text
from convbench.util.words import Structured
from convbench.views import without_system

_TOO_LONG = re.compile(
    r"context[ _]length|context window|maximum context|prompt is too long|too many tokens"
    r"|longer than the maximum|input is too long|exceeds? the (?:model'?s )?max",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"unsupported|not support|does not allow|deprecated|unrecognized"
    r"|unknown (?:param|field|arg|name)"
    r"|extra inputs are not permitted|not permitted|may only be|must be (?:unset|omitted|1)",
    re.IGNORECASE,
)
_NO_SCHEMA = re.compile(
    r"response_format|response format|json_schema|output_format|output_config|structured output"
    r"|response_?(?:json_?)?schema|response_?mime_?type|tool_choice|tool choice|\btools?\b"
    r"|guided|grammar",
    re.IGNORECASE,
)
_OTHER_NAMES = {
    "top_p": re.compile(r"\btopP\b"),
    "reasoning_effort": re.compile(r"\b(?:thinking|effort|thinking_?config)\b", re.IGNORECASE),
}
"""Names of parameters in providers' own APIs."""
_NO_SYSTEM = re.compile(
    r"system (?:role|message|prompt)s? (?:is |are )?not (?:supported|allowed)"
    r"|developer instruction is not enabled|only user and assistant roles|roles must alternate",
    re.IGNORECASE,
)
_FILTER = re.compile(r"content[ _](?:filter|policy|management)|safety system", re.IGNORECASE)
_NO_MONEY = re.compile(r"insufficient_quota|credit balance|billing|payment", re.IGNORECASE)
_PAGE = re.compile(r"^\s*<|<(?:!doctype|html|head|body|title|h1|p|div)\b", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>?")
_TITLE = re.compile(r"<title>([^<]*)", re.IGNORECASE)
_FAR = re.compile(r"\b\d{5,}\b")
"""A year beyond the range of Python's dates."""
MOST_BYTES = 16 << 10
"""Most bytes of an error body that are read."""
LONGEST_WAIT_S = 3600.0
"""Longest wait that a header can request; the engine has a shorter limit of its own."""
WAIT = (408, 409, 425, 429)
"""Statuses below 500 after which another try may help."""


def refused_parameter(status: int, text: str) -> bool:
    """Return True if status and text of a reply refuse a request's parameter, schema or system
    message."""
    refused = status in (400, 422) and bool(_REFUSED.search(text))
    return refused or refused_system(status, text) or refused_schema(status, text)


def named_parameters(text: str, names: Sequence[str]) -> list[str]:
    """Return those of `names` (of the OpenAI chat API) that a refusal mentions as whole words.

    If it mentions none, return those that it mentions by another API's name, such as `thinking` for
    `reasoning_effort`. The order is that of `names`; the list may be empty.
    """
    written = [name for name in names if re.search(rf"\b{name}\b", text)]
    return written or [
        name for name in names if name in _OTHER_NAMES and _OTHER_NAMES[name].search(text)
    ]


def refused_schema(status: int, text: str) -> bool:
    """Return True if the status is 400 or 422 and the text mentions reply schemas, tools or
    grammars.

    It says so of any such text: ask only about a call that had a reply schema.
    """
    return status in (400, 422) and bool(_NO_SCHEMA.search(text))


def refused_system(status: int, text: str) -> bool:
    """Return True if the status is 400, 422 or 500 and the text says that no system message is
    taken."""
    return status in (400, 422, 500) and bool(_NO_SYSTEM.search(text))


def reply_error(
    ref: str,
    status: int,
    text: str,
    headers: Mapping[str, str],
    *,
    key_variable: str,
    hint: str = "",
    answered: bool = False,
) -> ModelError:
    """Return, without raising it, the error for a reply whose status is not 200.

    Statuses 408, 409, 425, 429 and from 500 give a TransientModelError, with `retry_after` from the
    headers. All others, and 429 for want of credit, give a FatalModelError; it does not stop the
    run if the conversation is too long, a filter refused, or the refusal is unexplained and the
    model has `answered` before. `hint` is added to a 404.
    """
    detail = f"HTTP {status}" + (f": {text}" if text else "")
    if status in (401, 403):
        return FatalModelError(
            f"{ref}: HTTP {status}: the key in {key_variable} was refused; set {key_variable} to "
            "a key that may use this model"
        )
    if status == 402 or (status == 429 and _NO_MONEY.search(text)):
        return FatalModelError(f"{ref}: {detail}; the account has no credit left")
    if status in WAIT or status >= 500:
        return TransientModelError(
            f"{ref}: {detail}", retry_after=retry_after(headers), rate_limited=status == 429
        )
    if status == 413 or _TOO_LONG.search(text):
        line = f"{ref}: the conversation is longer than the model's context: {detail}"
        return FatalModelError(line, stops_run=False)
    if _FILTER.search(text):
        return FatalModelError(f"{ref}: the provider's filter refused: {detail}", stops_run=False)
    if status == 404:
        return FatalModelError(f"{ref}: {detail}; is the model's name right{hint}?")
    return FatalModelError(f"{ref}: {detail}", stops_run=not answered)


def error_message(raw: bytes) -> str:
    """Return the text of an error body on one line, keys redacted, at most 300 characters.

    JSON gives its message, code and parameter, in one of the usual forms; an HTML page its title or
    first words; anything else its own text. An empty body gives an empty text.
    """
    raw = raw[:MOST_BYTES]
    try:
        text = _error_text(loads(raw))
    except ValueError:
        text = _without_page(raw.decode("utf-8", "replace"))
    text = " ".join(redact_text(text).split())
    text = "".join(sign if sign.isprintable() else "?" for sign in text[:400])
    return text if len(text) <= 300 else text[:297] + "..."


def _without_page(text: str) -> str:
    """Return a text in which an HTML page, if any, is reduced to its title or first words."""
    match = _PAGE.search(text)
    if match is None:
        return text
    page = text[match.start() : match.start() + 4000]
    title = _TITLE.search(page)
    words = (title[1] if title else _TAG.sub(" ", page)).split()
    return text[: match.start()] + " ".join(words)[:100]


def _error_text(body: Any, depth: int = 8) -> str:
    """Return message, code and parameter of an error body in one of the usual forms."""
    if depth == 0:
        return ""
    if isinstance(body, dict):
        inner = body.get("error", body.get("detail"))
        if isinstance(inner, dict | list):
            return _error_text(inner, depth - 1)
        parts = [inner, body.get("message"), body.get("msg")]
        text = " ".join(_to_text(part) for part in parts if part)
        for name in ("code", "param", "loc"):
            value = _to_text(body.get(name) or "")
            if value and value not in text:
                text += f" ({value})"
        return text
    if isinstance(body, list):
        return "; ".join(_error_text(part, depth - 1) for part in body[:3])
    return _to_text(body)


def _to_text(value: Any) -> str:
    """Return a value of an error body as text; `…` if it is nested too deeply."""
    try:
        return str(value)
    except RecursionError:
        return "…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by the header `retry-after-ms`, else by Retry-After (seconds or a
    date).

    The result is between 0 and 3600. It is None without a valid header.
    """
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("Retry-After") or headers.get("retry-after")
    if not milliseconds and not value:
        return None
    seconds = _parse_seconds(milliseconds, 1e-3) if milliseconds else _parse_seconds(value, 1.0)
    return None if math.isnan(seconds) else min(max(0.0, seconds), LONGEST_WAIT_S)


def _parse_seconds(value: str | None, unit: float) -> float:
    """Return a number or an HTTP date as seconds from now; NaN if it is neither."""
    text = str(value)[:100]
    try:
        return float(text) * unit
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError, IndexError):
        return math.inf if _FAR.search(text) else math.nan


REPLY = "evaluation"
"""Name of the reply's schema, and of the tool whose arguments are the reply."""
SCHEMA = "JSON schema of its reply"
DROPPABLE = ("temperature", "top_p", "seed", "reasoning_effort", "tool_choice")
"""Parameters that may be left out: the model still answers the same question."""

Note = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr)


class Parameters:
    """The request parameters of a model, learnt from its alias and its refusals."""

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
        self.ref, self.headroom, self.limit = ref, headroom, limit
        self.reads, self.extra_body = reads, dict(extra_body or {})
        self.structured = structured
        self._known = set(drop)
        self._noted: set[str] = set()
        self._folds_system = False
        self._note = note

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings on which a reply depends besides messages and sampling.

        The keys are `headroom`, `reads`, `extra_body` and `structured`.
        """
        return {
            "headroom": self.headroom,
            "reads": self.reads,
            "extra_body": self.extra_body,
            "structured": self.structured,
        }

    def request_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the fields of a chat request for `sampling`, without messages and `extra_body`.

        They are the reply's limit of tokens (headroom added), the parameters that are set, and
        tools. Parameters that the model refuses are left out, which is noted once. A reply schema
        adds `response_format`, or `tools` and `tool_choice`, as `structured` says.
        """
        out: dict[str, Any] = {self.limit: sampling.max_tokens + self.headroom}
        for name in DROPPABLE:
            if not _is_requested(sampling, name):
                continue
            if name in self._known:
                self._note_once(name)
            else:
                out[name] = getattr(sampling, name)
        if sampling.tools:
            out["tools"] = list(sampling.tools)
        return out | self._schema_fields(sampling)

    def _schema_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the request's fields that make the reply follow a schema; empty for none."""
        schema = sampling.reply_schema
        if schema is None or self.structured == "text":
            return {}
        if self.structured == "json_schema":
            named = {"name": REPLY, "strict": True, "schema": schema}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        if sampling.reasoning_effort not in (None, "none"):
            return {}  # a model that thinks cannot be forced to call a tool
        return {
            "tools": [{"type": "function", "function": {"name": REPLY, "parameters": schema}}],
            "tool_choice": {"type": "function", "function": {"name": REPLY}},
        }

    def unsent_parameters(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the parameters that are set in `sampling` but not sent; empty if all
        are."""
        return unsent_names(sampling, self.request_fields(sampling))

    def fit_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages unchanged, until the model has refused a system message.

        After that the system prompt is part of the first user message, as in training with such a
        template.
        """
        return without_system(messages) if self._folds_system else messages

    def learn_refusal(self, status: int, text: str, sent: Mapping[str, Any]) -> bool:
        """Remember what a refusal refuses; return True if it is in the request `sent`, so that
        another try may help.

        System message, schema, parameters and the name of `max_tokens` are looked for in this
        order, the first found counts. `text` is the provider's message. A later request leaves it
        out; notes go to `note`. `sent` may have been built before another call's refusal was
        handled.
        """
        if refused_system(status, text) and sent["messages"][0]["role"] == "system":
            if not self._folds_system:
                self._folds_system = True
                self._note(
                    f"note: {self.ref} does not support system messages; the system prompt is "
                    "put into the first user message"
                )
            return True
        if refused_schema(status, text) and _has_schema(sent):
            self.structured = "text"
            self._note_once(SCHEMA)
            return True
        names = [name for name in named_parameters(text, DROPPABLE) if name in sent]
        if names:
            self._known.update(names)
            return True
        if "max_tokens" in sent and any(f"{q}max_tokens{q}" in text for q in "'`\""):
            self.limit = "max_completion_tokens"
            return True
        return False

    def _note_once(self, name: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._note(f"note: {self.ref} does not support {name}; it is not sent")


def _has_schema(sent: Mapping[str, Any]) -> bool:
    """Return True if a request contains a reply schema."""
    return "response_format" in sent or isinstance(sent.get("tool_choice"), dict)


def unsent_names(sampling: Sampling, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parameters that are set in `sampling` and are no key of a request.

    Only those that may be left out are looked at, such as `temperature` and `seed`; see DROPPABLE.
    """
    return tuple(name for name in DROPPABLE if _is_requested(sampling, name) and name not in sent)


def _is_requested(sampling: Sampling, name: str) -> bool:
    return getattr(sampling, name) is not None
