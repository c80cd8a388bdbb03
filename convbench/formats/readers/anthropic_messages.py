"""Requests and responses of Anthropic's Messages: {request, response}, one a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_message, read_messages, text_in, usage_of
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import as_mapping, kept


def recognises(first: object) -> bool:
    """A pair whose response is a message."""
    pair = first if isinstance(first, dict) else {}
    reply, asked = as_mapping(pair.get("response")), as_mapping(pair.get("request"))
    return "messages" in asked and reply.get("type") == "message"


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the request's history with its reply; earlier requests of the history are copies."""
    asked, reply = as_mapping(record["request"]), as_mapping(record["response"])
    system = text_in(asked.get("system"))
    messages = [LogMessage("system", system)] if system else []
    messages += read_messages(asked["messages"])
    messages += read_message(
        {"role": "assistant", "content": reply.get("content")},
        model=reply.get("model"),
        finish=reply.get("stop_reason"),
        usage=usage_of(reply.get("usage")),
    )
    first = next((m.text for m in messages if m.role == "user"), "")
    yield LogConversation(
        messages,
        id=f"{system[:200]}\n{first[:1000]}",
        tools=asked.get("tools"),
        temperature=asked.get("temperature"),
        metadata=kept(asked, "max_tokens", "model", "metadata"),
    )
