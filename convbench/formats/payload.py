"""What programs that trace models log as a call's input or output: messages of any framework, a
request, a response, a text; often as JSON text in JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from convbench.formats.dialects import (
    ROLES,
    as_text,
    parsed,
    read_content,
    read_message,
    response_items,
)
from convbench.formats.log import LeftOut, LogMessage, Role

LISTS = ("messages", "input_messages", "output_messages", "contents", "prompts")
"""Keys under which a request or response holds messages."""
INSIDE = (
    *("choices", "candidates", "generations", "output", "message", "kwargs", "args", "input"),
    *("prompt", "response", "content", "text"),
)
"""Keys under which it holds the rest, in the order they are looked for."""
KINDS = {"human": "user", "ai": "assistant", "HumanMessage": "user", "AIMessage": "assistant"}
"""LangChain's types of messages."""
REPR = re.compile(r"role='(\w+)' content=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|None)")
"""A message as Python prints it."""
ITEMS = ("function_call", "function_call_output", "reasoning", "message", "computer_call")


def unpacked(value: Any) -> Any:
    """Return the value of JSON text, which may itself be JSON text."""
    for _ in range(3):
        if not isinstance(value, str) or value.strip()[:1] not in ('"', "{", "["):
            break
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return parsed(value)
    return value


def read_payload(value: Any, role: Role, depth: int = 0) -> list[LogMessage]:
    """Return the messages of an input (`role` user) or an output (`role` assistant); none if there
    is nothing in it that anybody said."""
    value = unpacked(value)
    if value in (None, "", "None", [], {}) or depth > 6:
        return []
    if isinstance(value, list):
        return _read_list(value, role, depth)
    if isinstance(value, dict):
        return _read_object(value, role, depth)
    return _printed(as_text(value)) or [LogMessage(role, as_text(value))]


def _printed(text: str) -> list[LogMessage]:
    found = REPR.findall(text) if text.startswith("role='") else []
    return [
        LogMessage(ROLES[name], "" if said == "None" else as_text(parsed(f"[{said}]")[0]))
        for name, said in found
        if name in ROLES
    ]


def _read_list(values: list[Any], role: Role, depth: int) -> list[LogMessage]:
    bare = [v for v in values if not isinstance(v, dict) or "role" not in v]
    if bare and all(isinstance(v, dict) and v.get("type") in ITEMS for v in bare):
        return response_items(values)
    if all(isinstance(v, dict) and "toolName" in v for v in values):
        return [m for v in values for m in _message({"role": role, "content": [_as_call(v)]}, role)]
    is_parts = all(
        isinstance(v, dict) and not _role(v) and ("text" in v or "type" in v) for v in values
    )
    if is_parts and not any(k in v for v in values for k in ("message", "content")):
        content = read_content(values)
        said = LogMessage(role, content.text, content.reasoning, content.calls)
        return [said, *content.results]
    if values and all(isinstance(v, list) for v in values):
        values = values[0]  # of a batch, one is one conversation
    out: list[LogMessage] = []
    for value in values:
        out += read_payload(value, role, depth + 1)
    return out


def _as_call(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", **value}


def _role(fields: Mapping[str, Any]) -> str | None:
    name = fields.get("role")
    if not isinstance(name, str):
        name = KINDS.get(str(fields.get("type")), fields.get("type"))
        name = name if "content" in fields else None
    return name if str(name).lower() in ROLES else None


def _message(fields: Mapping[str, Any], role: Role) -> list[LogMessage]:
    """Return the messages of an object with a role. A message that is the definition of a tool,
    which some frameworks log among the messages, is none."""
    name = _role(fields) or role
    more = fields.get("additional_kwargs")
    calls = fields.get("tool_calls") or (more.get("tool_calls") if isinstance(more, dict) else None)
    content = fields.get("content", fields.get("parts", fields.get("text")))
    if name == "tool" and isinstance(content, dict) and "function" in content:
        return []
    if isinstance(content, str) and content.startswith('[{"function"'):
        calls, content = parsed(content), ""
    item = {k: v for k, v in fields.items() if k not in ("type", "additional_kwargs", "parts")}
    return read_message({**item, "role": name, "content": content, "tool_calls": calls})


def _read_object(fields: dict[str, Any], role: Role, depth: int) -> list[LogMessage]:
    if _role(fields) and any(k in fields for k in ("content", "parts", "text", "tool_calls")):
        try:
            return _message(fields, role)
        except LeftOut:
            return []
    out: list[LogMessage] = []
    config = fields.get("config")
    for holder in (fields, config if isinstance(config, dict) else {}):
        names = ("system", "instructions", "system_instruction", "systemInstruction")
        text = next((read_content(holder[n]).text for n in names if holder.get(n)), "")
        if text:
            out.append(LogMessage("system", text))
    key = next((k for k in (*LISTS, *INSIDE) if fields.get(k) not in (None, "", [], {})), None)
    if key is None:
        return out
    inner = read_payload(fields[key], role, depth + 1)
    finish = fields.get("finish_reason") or fields.get("stop_reason")
    if finish and inner:
        inner[-1].finish = as_text(finish)
    return out + inner


def read_exchange(asked: Any, said: Any, **more: Any) -> list[LogMessage]:
    """Return the messages of a call: its input and, if it does not end with it, its output."""
    messages = read_payload(asked, "user")
    reply = read_payload(said, "assistant")
    reply = reply[len(messages) :] if _begins(reply, messages) else reply
    system = [message for message in reply if message.role == "system"]
    if system and not any(message.role == "system" for message in messages):
        messages = system + messages
    reply = [message for message in reply if message.role != "system"]
    for message in reply:
        for name, value in more.items():
            setattr(message, name, value)
    return messages + reply


def _begins(messages: list[LogMessage], with_these: list[LogMessage]) -> bool:
    same = zip(messages, with_these, strict=False)
    return len(messages) > len(with_these) and all(
        (a.role, a.text) == (b.role, b.text) for a, b in same
    )
