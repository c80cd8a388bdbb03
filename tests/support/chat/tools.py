"""Models that call tools, strict about what is sent back of it, on both wires.

A reply's text that begins with `CALLS` is what the model says and, in JSON, the tools that it
calls: `CALLS[{"name": "add", "arguments": {"a": 1}}] and words`. A call that forces a tool gets the
reply's text as that tool's arguments.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .dialects import Refusal, plain
from .shopper import CALLS

BAD = "invalid_request_error"


def check_tools(body: Mapping[str, Any]) -> None:
    """Raises Refusal (400) where a history's calls and results do not belong together, or where a
    history has calls and the request no tools."""
    messages = [m for m in body.get("messages") or () if isinstance(m, dict)]
    if any(isinstance(m.get("content"), list) for m in messages):
        _check_blocks(messages)
    waiting: list[str] = []
    called = False
    for message in messages:
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise Refusal(400, BAD, "messages with role 'tool' must be a response to a "
                              "preceding message with 'tool_calls'")  # fmt: skip
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            raise _unanswered(waiting)
        for call in message.get("tool_calls") or ():
            called = True
            json.loads(call["function"]["arguments"])
            waiting.append(call["id"])
        if role == "assistant" and not message.get("tool_calls") and not message.get("content"):
            raise Refusal(400, BAD, "Invalid value for 'content': expected a string, got null.")
    if waiting:
        raise _unanswered(waiting)
    if called and not body.get("tools"):
        raise Refusal(400, BAD, "'tools' must be set where messages have 'tool_calls'")


def _unanswered(waiting: Sequence[str]) -> Refusal:
    said = "An assistant message with 'tool_calls' must be followed by tool messages responding to"
    return Refusal(400, BAD, f"{said} each 'tool_call_id'. Missing: {', '.join(waiting)}")


def _check_blocks(messages: Sequence[Mapping[str, Any]]) -> None:
    """Anthropic: the message after one with `tool_use` begins with all its `tool_result`s."""
    waiting: list[str] = []
    for message in messages:
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        given = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
        if sorted(given) != sorted(waiting):
            raise Refusal(400, BAD, "`tool_use` ids were found without `tool_result` blocks "
                          f"immediately after: {', '.join(waiting)}")  # fmt: skip
        kinds = [b.get("type") for b in blocks]
        if given and kinds[: len(given)] != ["tool_result"] * len(given):
            raise Refusal(400, BAD, "`tool_result` blocks must come first")
        waiting = [b["id"] for b in blocks if b.get("type") == "tool_use"]
    if waiting:
        raise _unanswered(waiting)


def with_calls(body: Mapping[str, Any], reply: Any) -> Any:
    """Return a reply's JSON with the tools that it calls."""
    anthropic = reply.get("type") == "message"
    said = plain(reply["content"]) if anthropic else reply["choices"][0]["message"]["content"]
    words, calls = _calls(body, said or "")
    if not calls:
        return reply
    names = {tool_name(tool) for tool in body.get("tools") or ()}
    mark = hashlib.sha256(json.dumps(body.get("messages")).encode()).hexdigest()[:8]
    named = [{"id": f"call_{mark}_{i}", **call} for i, call in enumerate(calls)]
    assert {call["name"] for call in calls} <= names, "a tool that is not offered"
    if anthropic:
        blocks = [{"type": "text", "text": words}] if words else []
        blocks += [
            {"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["arguments"]}
            for c in named
        ]
        return {**reply, "content": blocks, "stop_reason": "tool_use"}
    message = reply["choices"][0]["message"]
    message["content"] = words or None
    message["tool_calls"] = [
        {
            "id": c["id"], "type": "function",
            "function": {"name": c["name"], "arguments": _text(c["arguments"])},
        }
        for c in named
    ]  # fmt: skip
    reply["choices"][0]["finish_reason"] = "tool_calls"
    return reply


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name of a tool on either wire."""
    return str(tool.get("name") or tool.get("function", {}).get("name"))


def _calls(body: Mapping[str, Any], said: str) -> tuple[str, list[dict[str, Any]]]:
    """Return (words, calls)."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("tool", "function"):
        name = choice.get("name") or choice["function"]["name"]
        try:
            return "", [{"name": name, "arguments": json.loads(said)}]
        except ValueError:
            return said, []
    if not said.startswith(CALLS):
        return said, []
    calls, end = json.JSONDecoder().raw_decode(said, len(CALLS))
    return said[end:].strip(), calls


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
