"""The two wire formats the provider speaks: OpenAI chat completions and Anthropic messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from .replies import Call

IMAGE = "[image]"
"""Stands for an image part in a call's text."""


@dataclass(frozen=True)
class Refusal(Exception):
    """A request that the API refuses, in neither API's words yet."""

    status: int
    kind: str
    message: str
    code: str | None = None
    param: str | None = None


class Dialect(Protocol):
    """One API's wire format."""

    def incoming(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        """The request as OpenAI's or Anthropic's API writes it."""
        return body

    def outgoing(self, reply: Any) -> Any:
        """A reply of those APIs as this one writes it."""
        return reply

    def read(self, body: Mapping[str, Any]) -> Call:
        """The request; raises Refusal for a malformed one."""

    def write(
        self, call: Call, key: str, text: str | None, prompt: int, words: int, cut: bool
    ) -> object:
        """The reply's JSON. `text` None is null content; `cut` by max_tokens."""

    def error(self, refusal: Refusal) -> object:
        """The error's JSON."""


def plain(content: object) -> str:
    """The text of a message's content, a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text", IMAGE) for part in content if isinstance(part, dict))
        return "\n".join(str(text) for text in texts)
    return ""


def _messages(body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        message = "'messages' must be a non-empty list"
        raise Refusal(400, "invalid_request_error", message, param="messages")
    return tuple((str(m.get("role")), plain(m.get("content"))) for m in messages)


class OpenAI(Dialect):
    """`POST /v1/chat/completions`."""

    def read(self, body: Mapping[str, Any]) -> Call:
        """See `Dialect.read`."""
        if body.get("stream"):
            message = "this provider does not stream"
            raise Refusal(400, "invalid_request_error", message, "unsupported_value", "stream")
        return Call(
            model=str(body.get("model")),
            messages=_messages(body),
            max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
            temperature=body.get("temperature"),
            seed=body.get("seed"),
            body=body,
        )

    def write(
        self, call: Call, key: str, text: str | None, prompt: int, words: int, cut: bool
    ) -> object:
        """See `Dialect.write`."""
        return {
            "id": f"chatcmpl-{key}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": call.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": "length" if cut else "stop",
                }
            ],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": words,
                "total_tokens": prompt + words,
            },
        }

    def error(self, refusal: Refusal) -> object:
        """See `Dialect.error`."""
        return {
            "error": {
                "message": refusal.message,
                "type": refusal.kind,
                "param": refusal.param,
                "code": refusal.code,
            }
        }


class Anthropic(Dialect):
    """`POST /v1/messages`."""

    KINDS: ClassVar = {
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        503: "overloaded_error",
    }

    def read(self, body: Mapping[str, Any]) -> Call:
        """See `Dialect.read`."""
        if not isinstance(body.get("max_tokens"), int):
            raise Refusal(400, "invalid_request_error", "max_tokens: Field required")
        system = plain(body.get("system"))
        return Call(
            model=str(body.get("model")),
            messages=((("system", system),) if system else ()) + _messages(body),
            max_tokens=body["max_tokens"],
            temperature=body.get("temperature"),
            body=body,
        )

    def write(
        self, call: Call, key: str, text: str | None, prompt: int, words: int, cut: bool
    ) -> object:
        """See `Dialect.write`."""
        return {
            "id": f"msg_{key}",
            "type": "message",
            "role": "assistant",
            "model": call.model,
            "content": [] if text is None else [{"type": "text", "text": text}],
            "stop_reason": "max_tokens" if cut else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": prompt, "output_tokens": words},
        }

    def error(self, refusal: Refusal) -> object:
        """See `Dialect.error`."""
        fallback = "api_error" if refusal.status >= 500 else "invalid_request_error"
        kind, message = self.KINDS.get(refusal.status, fallback), refusal.message
        if refusal.code == "unsupported_parameter":
            message = (
                f"`{refusal.param}` is deprecated for this model."
                if refusal.param in ("temperature", "top_p")
                else f"{refusal.param}: Extra inputs are not permitted"
            )
        if refusal.code == "context_length_exceeded":
            message = f"prompt is too long: {message}"
        return {"type": "error", "error": {"type": kind, "message": message}}
