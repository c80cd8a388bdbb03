"""Models that think in a channel of their own, each strict about what is sent back of it.

`deepseek-r1` refuses a history with reasoning in it; `deepseek-v4` one without it, or with
another's; `vllm` writes `reasoning` and takes what comes; `anthropic` writes a signed block, and a
redacted one beside it, and refuses a history whose blocks are missing or were touched; `tags`
writes its thought into the text. What was thought is a function of what was said, so that a
history can be checked without remembering anything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from .dialects import Refusal

KINDS = ("deepseek-r1", "deepseek-v4", "vllm", "anthropic", "tags")
BAD = "invalid_request_error"


def thought(said: str) -> str:
    """What the model thought before it said this."""
    mark = hashlib.sha256(said.encode()).hexdigest()[:12]
    return f"Let me see. Case {mark}: the options differ, so I compare each with the question."


def said_by(message: Mapping[str, Any]) -> str:
    """What a message of the assistant says: its words, and what it calls of tools, on either
    wire."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    words = content if isinstance(content, str) else "".join(b.get("text", "") for b in blocks)
    calls = [[b["name"], b["input"]] for b in blocks if b.get("type") == "tool_use"]
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        calls.append([call["function"]["name"], json.loads(arguments)])
    return f"{words}|{json.dumps(calls, sort_keys=True)}" if calls else words


def signature(thinking: str) -> str:
    """A seal that holds for this text alone."""
    return "sig-" + hashlib.sha256(f"seal|{thinking}".encode()).hexdigest()


def redacted(said: str) -> str:
    """What only the provider can read."""
    return "enc-" + hashlib.sha256(f"hidden|{said}".encode()).hexdigest()


def check_replay(kind: str | None, body: Mapping[str, Any]) -> None:
    """Raises Refusal (400) where the history breaks the model's rule."""
    for message in _assistant(body):
        if kind == "anthropic":
            _check_blocks(message.get("content"))
        elif kind == "deepseek-r1" and "reasoning_content" in message:
            raise Refusal(400, BAD, "reasoning_content in the input messages is not allowed")
        elif kind == "deepseek-v4" and _sent(message) != thought(said_by(message)):
            raise Refusal(400, BAD, "The `reasoning_content` must be passed back to the API")


def _assistant(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (m for m in body.get("messages") or () if m.get("role") == "assistant")


def _sent(message: Mapping[str, Any]) -> object:
    return message.get("reasoning_content")


def _check_blocks(content: object) -> None:
    blocks = content if isinstance(content, list) else []
    kinds = [block.get("type") for block in blocks]
    said = said_by({"content": blocks})
    if kinds[:2] != ["thinking", "redacted_thinking"]:
        found = f"found {kinds or 'text'}"
        raise Refusal(400, BAD, f"Expected `thinking` or `redacted_thinking` first, {found}")
    text, seal = blocks[0].get("thinking"), blocks[0].get("signature")
    if (text, seal) != (thought(said), signature(thought(said))):
        raise Refusal(400, BAD, "Invalid `signature` in `thinking` block")
    if blocks[1].get("data") != redacted(said):
        raise Refusal(400, BAD, "Invalid `data` in `redacted_thinking` block")


def with_thought(kind: str | None, reply: Any) -> Any:
    """Return a reply's JSON with what was thought before it, counted as the API counts."""
    if kind is None:
        return reply
    if kind == "anthropic":
        said = said_by(reply)
        thinks = thought(said)
        reply["content"][:0] = [
            {"type": "thinking", "thinking": thinks, "signature": signature(thinks)},
            {"type": "redacted_thinking", "data": redacted(said)},
        ]
        reply["usage"]["output_tokens"] += len(thinks.split())
        return reply
    message, usage = reply["choices"][0]["message"], reply["usage"]
    thinks = thought(said_by(message))
    if kind == "tags":
        message["content"] = f"<think>\n{thinks}\n</think>\n\n{message['content'] or ''}"
    else:
        message["reasoning" if kind == "vllm" else "reasoning_content"] = thinks
    usage["completion_tokens"] += len(thinks.split())
    usage["completion_tokens_details"] = {"reasoning_tokens": len(thinks.split())}
    return json.loads(json.dumps(reply))
