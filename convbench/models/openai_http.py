"""Client of OpenAI-compatible chat endpoints over aiohttp: a fraction of litellm's CPU per call."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from convbench.errors import FatalModelError, ModelError, Usage
from convbench.models.failures import BrokenReply
from convbench.models.http import HttpClient
from convbench.models.model import Model
from convbench.models.prices import Price, cache_counts
from convbench.models.refusals import (
    Parameters,
    error_message,
    refused_parameter,
    reply_error,
    unsent_names,
)
from convbench.models.replies import completion_of, reasoning_of
from convbench.models.tools import read_arguments
from convbench.net.untrusted_json import loads, safe_count, safe_dollars
from convbench.schema import Completion, ImagePart, Message, Reasoning, Sampling, ToolCall, text_of
from convbench.schema.chat import Part
from convbench.util.redact import redact_text
from convbench.util.regular import open_to_read
from convbench.util.words import Structured
from convbench.views import original_text

MARK = {"type": "ephemeral"}
"""Marks the end of a prompt prefix that is to be cached (Anthropic's `cache_control`)."""


def wire_messages(
    messages: Sequence[Message], media: Path | None, *, marks: bool = False
) -> list[Any]:
    """Return one dict of JSON data per message, in the form of the OpenAI chat API.

    Images become data URIs, read from the folder `media`. With `marks`, and if a message has a
    `stable` head, the end of each such head and of the system prompt is marked for caching. Raise
    FatalModelError, which does not stop the run, if an image cannot be read.
    """
    bodies = [_message_json(message, media) for message in messages]
    if marks and any("stable" in message for message in messages):
        return [
            _mark_stable_head(out, message) for out, message in zip(bodies, messages, strict=True)
        ]
    return bodies


def _mark_stable_head(out: dict[str, Any], message: Message) -> dict[str, Any]:
    """Return a message with a cache mark at the end of its stable head."""
    content = out["content"]
    stable = len(content) if message["role"] == "system" else message.get("stable", 0)
    if not stable or not isinstance(content, str) or not content[:stable].strip():
        return out
    head: dict[str, Any] = {"type": "text", "text": content[:stable], "cache_control": MARK}
    rest = content[stable:]
    tail = [{"type": "text", "text": rest}] if rest.strip() else []
    return {**out, "content": [head, *tail]}


def _message_json(message: Message, media: Path | None) -> dict[str, Any]:
    content = message["content"]
    out: dict[str, Any] = {
        "role": message["role"],
        "content": content if isinstance(content, str) else _content_parts(content, media),
    }
    if "name" in message:
        out["name"] = message["name"]
    if "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    if message.get("tool_calls"):
        out["content"] = out["content"] or None
        out["tool_calls"] = [_call_json(call) for call in message["tool_calls"]]
    reasoning = message.get("reasoning")
    return out if reasoning is None else _with_reasoning(out, reasoning, text_of(content))


def _call_json(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as JSON data; arguments that are not a JSON object are wrapped in one,
    since some providers refuse them."""
    arguments = call.arguments
    if read_arguments(arguments) is None:
        arguments = json.dumps({"unreadable": arguments})
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments or "{}"},
    }


def _with_reasoning(out: dict[str, Any], reasoning: Reasoning, content: str) -> dict[str, Any]:
    """Return an assistant message with its reasoning in the field that it came from."""
    if reasoning.blocks:
        blocks = [block.model_dump(exclude_none=True) for block in reasoning.blocks]
        return {**out, "thinking_blocks": blocks}
    if reasoning.via == "tags":
        return {**out, "content": original_text(reasoning, content)}
    via = "reasoning" if reasoning.via == "reasoning" else "reasoning_content"
    return {**out, via: reasoning.text}


def _content_parts(content: tuple[Part, ...], media: Path | None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, ImagePart):
            url = _data_uri(str((media or Path("media")) / part.file), part.media_type)
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": part.text})
    return parts


@lru_cache(maxsize=64)
def _data_uri(path: str, media_type: str) -> str:
    try:
        with open_to_read(Path(path)) as file:
            data = file.read()
    except OSError as error:
        line = f"{path}: image cannot be read: {error.strerror}"
        raise FatalModelError(line, stops_run=False) from None
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


class OpenAIModel(Model):
    """One model of one OpenAI-compatible endpoint."""

    def __init__(
        self,
        ref: str,
        name: str,
        api_base: str,
        *,
        key: str | None,
        key_variable: str,
        parameters: Parameters,
        price: Price | None = None,
        media: Path | None = None,
        hint: str = "",
    ) -> None:
        self.ref, self.name = ref, name
        self.priced = price is not None
        self.base = api_base.rstrip("/")
        self.url = self.base + "/chat/completions"
        self.http = HttpClient(ref, self.base, {"Authorization": f"Bearer {key}"} if key else {})
        self._endpoint = f"{name} at {urlsplit(api_base).hostname}:{urlsplit(api_base).port or ''}"
        self._key_variable = key_variable
        self._parameters, self._price, self._media = parameters, price, media
        self._hint = hint
        self.headroom = parameters.headroom
        self.caches = price.caches if price else None
        self._answered = False

    @property
    def endpoint(self) -> str:
        """Return `NAME at HOST:PORT`, with an empty port if the address has none."""
        return self._endpoint

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return what a reply depends on: `url`, `name`, `headroom`, `reads`, `extra_body` and
        `structured`."""
        return {"url": self.url, "name": self.name, **self._parameters.settings}

    @property
    def structured(self) -> Structured:  # type: ignore[override]
        """Return how it is made to reply by a JSON schema: `json_schema`, `tool` or `text`, which
        means it is not."""
        return self._parameters.structured

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many prompt and reply tokens, none of them cached; None if the
        price is unknown."""
        return self._price.cost_of(prompt, reply) if self._price else None

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, with the parameters that were not sent in `left_out`.

        If a parameter, schema or the system message is refused, the call is repeated without it;
        else nothing is tried again. Raise a ModelError for any other status and an unusable reply.
        `key` is unused.
        """
        while True:  # each refusal leaves one more thing out
            body = self.request_body(messages, sampling)
            status, raw, headers = await self.http.send_request(
                "POST", self.url, orjson.dumps(body)
            )
            if status == 200:
                completion, missing = self.read_reply(raw), unsent_names(sampling, body)
                return replace(completion, left_out=missing) if missing else completion
            if not self.learn_refusal(status, error_message(raw), body):
                raise self.status_error(status, error_message(raw), headers)

    def request_body(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        """Return the body of a call's request as a dict.

        It has `model`, `messages`, the reply's limit of tokens, the requested parameters and the
        fields of `extra_body`, unless others replace them. Parameters that the model is known to
        refuse are left out, which is noted once. Raise FatalModelError if an image cannot be read.
        """
        return {
            **self._parameters.extra_body,
            "model": self.name,
            "messages": wire_messages(self._parameters.fit_messages(messages), self._media),
            **self._parameters.request_fields(sampling),
        }

    def unsent_parameters(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the parameters that are set in `sampling` but not sent; empty if all
        are."""
        return self._parameters.unsent_parameters(sampling)

    def learn_refusal(self, status: int, text: str, sent: Mapping[str, Any]) -> bool:
        """Remember what a refusal (its status and message) refuses; return True if the same call
        may succeed now.

        Return False if it is no refusal of a parameter, schema or system message in the request
        `sent`.
        """
        refused = refused_parameter(status, text)
        return refused and self._parameters.learn_refusal(status, text, sent)

    def status_error(self, status: int, text: str, headers: Mapping[str, str]) -> ModelError:
        """Return, without raising it, the error for a reply whose status is not 200."""
        return reply_error(
            self.ref,
            status,
            text,
            headers,
            key_variable=self._key_variable,
            hint=self._hint,
            answered=self._answered,
        )

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        await self.http.aclose()

    def read_reply(self, raw: bytes, price: Price | None = None) -> Completion:
        """Return the completion in a reply's body. `price` (a batch's) replaces the list price.

        Raise BrokenReply with the reported usage for a malformed or empty reply, and
        FatalModelError, which does not stop the run, if all tokens went into reasoning or a filter
        refused.
        """
        body = _parse_json(raw)
        # before the content is checked: the reply is billed, whatever it is
        usage = self._read_usage(body, price or self._price)
        try:
            choice = body["choices"][0]
            reply = choice["message"]
            content, reason = reply.get("content"), choice.get("finish_reason")
            if not content and isinstance(reply.get("refusal"), str):
                content, reason = reply["refusal"], "content_filter"
        except (KeyError, IndexError, TypeError, AttributeError):
            line = f"{self.ref}: reply is not a chat completion: {_body_start(raw)!r}"
            raise BrokenReply(line, usage=usage) from None
        completion = completion_of(
            self.ref,
            content,
            reason,
            usage=usage,
            model=body.get("model"),
            reasoning=reasoning_of(reply, body.get("usage")),
            tags=self._parameters.reads == "tags",
            calls=reply.get("tool_calls"),
        )
        self._answered = True
        return completion

    def _read_usage(self, body: Any, price: Price | None) -> Usage:
        """Return the tokens and dollars of a reply's body."""
        usage = body.get("usage") if isinstance(body, dict) else None
        usage = usage if isinstance(usage, dict) else {}
        prompt, reply = (
            safe_count(usage.get("prompt_tokens")),
            safe_count(usage.get("completion_tokens")),
        )
        cost = safe_dollars(usage.get("cost"))
        if cost is None and price and prompt is not None and reply is not None:
            cost = price.cost_of(prompt, reply, *cache_counts(usage))
        return Usage(prompt, reply, cost)


def _parse_json(raw: bytes) -> Any:
    """Return a body's JSON value; None if it is not JSON."""
    try:
        return loads(raw)
    except ValueError:
        return None


def _body_start(raw: bytes) -> str:
    """Return the beginning of a body for an error message, keys redacted."""
    if raw.lstrip()[:1] == b"<":
        return error_message(raw)
    return redact_text(raw[:4000].decode("utf-8", "replace"))[:60]
