"""A provider that bills by its own rules: what it charges, and what it says and sends for it.

Each kind is a fault of the plan (`plan.BILLED`), so that it strikes with a probability, on a
schedule, or on some text. `Stats.billed_prompt` and `billed_reply` hold what it charges.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ..serve import drop, json_reply
from .dialects import OpenAI, Refusal
from .replies import Call

ENDLESS = 22
"""Times `max_tokens` that a model writes which takes no notice of it."""
LIES: dict[str, Callable[[int], object]] = {
    "negative": lambda true: -true,
    "zero": lambda true: 0,
    "huge": lambda true: 10**18,
    "float": lambda true: true + 0.5,
    "nan": lambda true: float("nan"),
    "text": lambda true: f"{true} tokens",
    "list": lambda true: [true],
}
"""What the usage says of a true count, by kind."""


@dataclass(frozen=True)
class Bill:
    """What a call is charged with, and the text that it gets."""

    prompt: int
    reply: int
    text: str


def bill(kind: str | None, call: Call, text: str, dense: float | None) -> Bill:
    """Return what a call is charged with: words, or `dense` tokens for each byte of UTF-8."""

    def tokens(said: str) -> int:
        return len(said.split()) if dense is None else round(len(said.encode()) * dense)

    limit = call.max_tokens or 16
    if kind == "reasoning":
        return Bill(_prompt(call, dense), limit, "")
    if kind == "endless":
        text = "and so on " * (ENDLESS * limit // 3)
    return Bill(_prompt(call, dense), tokens(text), text)


def charged(
    kind: str, request: web.BaseRequest, call: Call, key: str, said: Bill
) -> web.StreamResponse:
    """Answer a call that was charged, as its kind says."""
    if kind == "billed_500":
        refusal = Refusal(500, "server_error", "The server had an error after all the work")
        return json_reply(OpenAI().error(refusal), 500)
    if kind == "billed_drop":
        return drop(request)
    body = _body(kind, call, key, said)
    if kind == "billed_truncated":
        half = json.dumps(body).encode()
        return web.Response(body=half[: len(half) // 2], content_type="application/json")
    return json_reply(body)


def _body(kind: str, call: Call, key: str, said: Bill) -> dict[str, Any]:
    body: Any = OpenAI().write(call, key, said.text, said.prompt, said.reply, kind == "reasoning")
    body["usage"] = {"prompt_tokens": said.prompt, "completion_tokens": said.reply}
    if kind == "filter":
        body["choices"][0] |= {
            "finish_reason": "content_filter",
            "message": {"role": "assistant", "content": ""},
        }
    if kind == "malformed":
        body["choices"] = []
    if kind == "untold":
        del body["usage"]
    if kind in LIES:
        body["usage"] = {name: LIES[kind](true) for name, true in body["usage"].items()}
    if kind == "free":
        body["usage"]["cost"] = 0.0
    return dict(body)


def _prompt(call: Call, dense: float | None) -> int:
    if dense is None:
        return call.words
    return sum(round(len(text.encode()) * dense) + 4 for _, text in call.messages)
