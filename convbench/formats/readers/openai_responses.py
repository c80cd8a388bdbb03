"""Requests and responses of OpenAI's Responses: {request, response}, one a line; a response may be
the text of its stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import response_items, usage_of
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text

whole_file = True


def recognises(first: object) -> bool:
    """A pair with an input, whose response is one or the text of a stream."""
    pair = first if isinstance(first, dict) else {}
    reply = pair.get("response")
    is_reply = as_mapping(reply).get("object") == "response" or "response.c" in as_text(reply)[:400]
    return "input" in as_mapping(pair.get("request")) and is_reply


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a file: a request that names the response before it has only what
    is new, any other the whole history."""
    begun: dict[str, list[LogMessage]] = {}
    for line in lines:
        asked, reply = as_mapping(line["request"]), _response(line["response"])
        messages = list(begun.get(as_text(asked.get("previous_response_id")), []))
        if not messages and asked.get("instructions"):
            messages.append(LogMessage("system", asked["instructions"]))
        given = asked["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        messages += response_items(items)
        mark = as_text(reply.get("id"))
        said = response_items(reply.get("output") or [], model=reply.get("model"), group=mark)
        if said and said[-1].role == "assistant":
            said[-1].finish = as_mapping(reply.get("incomplete_details")).get("reason")
            said[-1].usage = usage_of(reply.get("usage"))
        messages += said
        begun[mark] = messages
        yield LogConversation(
            list(messages),
            id=where,
            tools=asked.get("tools"),
            temperature=reply.get("temperature"),
            metadata={"model": asked.get("model"), "status": reply.get("status")},
        )


def _response(value: Any) -> dict[str, Any]:
    """Return a response, that of a stream's last event too."""
    if isinstance(value, dict):
        return value
    last: dict[str, Any] = {}
    for line in as_text(value).split("\n"):
        if line.startswith("data: {"):
            last = as_mapping(as_mapping(json.loads(line[6:])).get("response")) or last
    return last
