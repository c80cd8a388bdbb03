"""Requests and responses of a model's API, {request, response} one a line: OpenAI's chat, its
Responses (also as the text of a stream), Anthropic's Messages. And LiteLLM's standard logging
payload, and rows of its spend log where content is stored."""

import json
from functools import partial
from pathlib import PurePath
from typing import Any

from convbench.formats.chats import read_chat
from convbench.formats.dialects import usage_of
from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage, each
from convbench.formats.values import as_mapping, as_text, at, first_of, kept

whole_file = True
OWN = ("messages", "input", "system", "instructions")
"""What of a request was said."""
FACTS = ("model", "status", "custom_llm_provider", "request_tags", "end_user", "session_id")


def recognises(first: object) -> bool:
    """A pair of what was said and a reply of the API, or the text of its stream; or a payload."""
    pair = as_mapping(first)
    asked, reply = as_mapping(pair.get("request")), pair.get("response")
    signs = {"choices", "output", "content"} & as_mapping(reply).keys()
    is_reply = bool(signs) or "response.c" in as_text(reply)[:400]
    is_payload = "call_type" in pair and bool({"response_cost", "spend"} & pair.keys())
    return is_payload or (is_reply and bool({"messages", "input"} & asked.keys()))


def read(lines: Any, where: str) -> Items:
    """Yield the conversations of a file: a request that names the response before it has only what
    is new, any other the whole history, of which copies are dropped later."""
    begun: dict[str, list[LogMessage]] = {}
    yield from each(lines, partial(_read, begun, PurePath(where).name))


def _read(begun: dict[str, list[LogMessage]], name: str, line: dict[str, Any]) -> LogConversation:
    reply, payload = _response(line.get("response")), "call_type" in line
    if not reply:
        raise LeftOut("the content was not stored")
    asked = as_mapping(line.get("request"))
    if payload:
        asked = as_mapping(line.get("model_parameters")) | kept(line, "messages")
    before = begun.get(as_text(asked.get("previous_response_id")), [])
    given = read_chat(kept(asked, *OWN), "user")
    messages = before + [m for m in given if not (before and m.role == "system")]
    content = {key: value for key, value in reply.items() if key != "usage"}
    said = [m for m in read_chat(content, "assistant") if m.role != "system"]
    for message in said:
        message.model = line.get("model") or reply.get("model")
        message.group = reply.get("id") or None
    if said and said[-1].role == "assistant":
        cut = at(reply, "incomplete_details", "reason")
        said[-1].finish = first_of(reply, "stop_reason") or cut or said[-1].finish
        cost = line.get("response_cost", line.get("spend"))
        said[-1].usage = usage_of(line, cost) if payload else usage_of(reply.get("usage"))
    begun |= {as_text(reply.get("id")): messages + said} if reply.get("id") else {}
    facts = kept(asked, "model", "max_tokens", "metadata") | kept(reply, "status")
    return LogConversation(
        messages + said,
        id=line.get("trace_id") or line.get("session_id") or name,
        tools=asked.get("tools"),
        temperature=first_of({**reply, **asked}, "temperature"),
        failure="the call failed" if line.get("status") == "failure" else None,
        time=line.get("startTime"),
        metadata=kept(line, *FACTS) if payload else facts,
    )


def _response(value: Any) -> dict[str, Any]:
    """Return a response, that of a stream's last event too."""
    last = as_mapping(value)
    for event in as_text(value).split("\n") if isinstance(value, str) and not last else ():
        if event.startswith("data: {"):
            last = as_mapping(at(json.loads(event[6:]), "response")) or last
    return last
