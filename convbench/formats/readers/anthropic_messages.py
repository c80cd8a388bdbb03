"""Requests and responses of Anthropic's Messages: {request, response}, one a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, read_content, read_message
from convbench.formats.log import LogConversation, LogMessage


def recognises(first: object) -> bool:
    """A pair whose response is a message."""
    if not isinstance(first, dict):
        return False
    reply = as_mapping(first.get("response"))
    asked = as_mapping(first.get("request"))
    return "messages" in asked and reply.get("type") == "message"


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the request's history with its reply; earlier requests of the history are copies."""
    asked, reply = as_mapping(record["request"]), as_mapping(record["response"])
    system = read_content(asked.get("system")).text
    messages = [LogMessage("system", system)] if system else []
    for item in asked["messages"]:
        messages += read_message(item)
    usage = as_mapping(reply.get("usage"))
    for part in read_message({"role": "assistant", "content": reply.get("content")}):
        part.model, part.finish = reply.get("model"), reply.get("stop_reason")
        part.usage = (usage.get("input_tokens"), usage.get("output_tokens"), None)
        messages.append(part)
    first = next((m.text for m in messages if m.role == "user"), "")
    names = ("max_tokens", "model", "metadata")
    yield LogConversation(
        messages,
        id=f"{system[:200]}\n{first[:1000]}",
        tools=asked.get("tools") or [],
        temperature=asked.get("temperature"),
        metadata={name: asked[name] for name in names if name in asked},
    )
