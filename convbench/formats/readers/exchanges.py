"""Requests and responses of a model's API, {request, response} one a line: OpenAI's chat, its
Responses (also as the text of a stream), Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from convbench.formats.chats import read_chat
from convbench.formats.dialects import usage_of
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, first_of, kept

whole_file = True
OWN = ("messages", "input", "system", "instructions")
"""What of a request was said."""


def recognises(first: object) -> bool:
    """A pair of what was said and a reply of the API, or the text of its stream."""
    pair = first if isinstance(first, dict) else {}
    asked, reply = as_mapping(pair.get("request")), pair.get("response")
    signs = {"choices", "output", "content"} & as_mapping(reply).keys()
    is_reply = bool(signs) or "response.c" in as_text(reply)[:400]
    return is_reply and ("messages" in asked or "input" in asked)


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a file: a request that names the response before it has only what
    is new, any other the whole history, of which copies are dropped later."""
    begun: dict[str, list[LogMessage]] = {}
    for line in lines:
        asked, reply = as_mapping(line["request"]), _response(line["response"])
        before = begun.get(as_text(asked.get("previous_response_id")), [])
        given = read_chat(kept(asked, *OWN), "user")
        messages = before + [m for m in given if not (before and m.role == "system")]
        mark, content = as_text(reply.get("id")), {k: v for k, v in reply.items() if k != "usage"}
        said = [m for m in read_chat(content, "assistant") if m.role != "system"]
        for message in said:
            message.model, message.group = reply.get("model"), mark or None
        if said and said[-1].role == "assistant":
            cut = as_mapping(reply.get("incomplete_details")).get("reason")
            said[-1].finish = first_of(reply, "stop_reason") or cut or said[-1].finish
            said[-1].usage = usage_of(reply.get("usage"))
        begun |= {mark: messages + said} if mark else {}
        yield LogConversation(
            messages + said,
            id=PurePath(where).name,
            tools=asked.get("tools"),
            temperature=first_of({**reply, **asked}, "temperature"),
            metadata=kept(asked, "model", "max_tokens", "metadata") | kept(reply, "status"),
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
