"""What the provider reads from a request, and the requests it refuses, as the APIs do."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .dialects import Refusal
from .plan import Plan
from .replies import Call

WORD = re.compile(r"\S+")
BAD_REQUEST = "invalid_request_error"


def read_body(data: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises Refusal (400) for anything else."""
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refusal(400, BAD_REQUEST, "We could not parse the JSON body of your request")
    return body


def request_key(call: Call, body: Mapping[str, Any]) -> str:
    """A hash of all that decides the reply: equal for a request and its retry."""
    parts = [call.model, call.messages, call.max_tokens, call.temperature, call.seed]
    parts.append(body.get("top_p"))
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def check_key(plan: Plan, headers: Mapping[str, str]) -> None:
    """Raises Refusal (401) for a key that the plan does not list; never shows a whole key."""
    if plan.api_keys is None:
        return
    given = headers.get("x-api-key") or headers.get("Authorization", "").removeprefix("Bearer ")
    if given not in plan.api_keys:
        message = f"Incorrect API key provided: {given[:3]}***"
        raise Refusal(401, BAD_REQUEST, message, "invalid_api_key")


def check_beta(headers: Mapping[str, str], bodies: Iterable[Mapping[str, Any]]) -> None:
    """Raises Refusal for what Anthropic takes only with its beta's name in a header, and for fields
    that it does not know."""
    beta = headers.get("anthropic-beta", "")
    for body in bodies:
        if "json_mode" in body or ("output_format" in body and "structured-outputs" not in beta):
            name = "json_mode" if "json_mode" in body else "output_format"
            raise Refusal(400, BAD_REQUEST, f"{name}: Extra inputs are not permitted")


def check(plan: Plan, call: Call, body: Mapping[str, Any]) -> None:
    """Raises Refusal for an unknown model, a refused parameter, or too long a context."""
    if plan.models is not None and call.model not in plan.models:
        message = f"The model `{call.model}` does not exist or you do not have access to it."
        raise Refusal(404, BAD_REQUEST, message, "model_not_found")
    for parameter, code in plan.refuse.items():
        if parameter in body:
            _refuse_parameter(parameter, body[parameter], code)
    first = next(iter(body.get("messages") or ()), {})
    if plan.refuse_system is not None and first.get("role") == "system":
        raise Refusal(400, BAD_REQUEST, plan.refuse_system)
    size = call.words + (call.max_tokens or 0)
    if plan.context_tokens is not None and size > plan.context_tokens:
        message = (
            f"This model's maximum context length is {plan.context_tokens} tokens. However, you"
            f" requested {size} tokens ({call.words} in the messages, {call.max_tokens or 0} in the"
            " completion). Please reduce the length of the messages or completion."
        )
        raise Refusal(400, BAD_REQUEST, message, "context_length_exceeded", "messages")


def _refuse_parameter(parameter: str, value: object, code: str) -> None:
    if code == "unsupported_parameter":
        message = f"Unsupported parameter: '{parameter}' is not supported with this model."
        if parameter == "max_tokens":
            message += " Use 'max_completion_tokens' instead."
        raise Refusal(400, BAD_REQUEST, message, code, parameter)
    if value != 1:
        message = (
            f"Unsupported value: '{parameter}' does not support {value} with this model."
            " Only the default (1) value is supported."
        )
        raise Refusal(400, BAD_REQUEST, message, code, parameter)


def first_words(text: str, limit: int | None) -> str:
    """`text` cut after `limit` words; whole when it has no more."""
    if limit is None:
        return text
    for count, word in enumerate(WORD.finditer(text), start=1):
        if count == limit:
            return text[: word.end()]
    return text
