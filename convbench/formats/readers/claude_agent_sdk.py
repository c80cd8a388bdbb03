"""The message stream of Claude's Agent SDK: lines of type system, assistant, user and result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, read_message
from convbench.formats.log import Item, LogConversation, LogMessage

whole_file = True


def recognises(first: object) -> bool:
    """A line of the stream: its keys are in snake_case, those of a stored session are not."""
    if not isinstance(first, dict) or "sessionId" in first:
        return False
    known = first.get("type") in ("system", "assistant", "user", "result")
    return known and "session_id" in first


def read(lines: Any, where: str) -> Iterator[Item]:
    """Yield the conversation of each agent: a sub-agent's lines name the call that started it."""
    parts: dict[str, LogConversation] = {}
    result: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for line in (line for line in lines if isinstance(line, dict)):
        if line.get("type") == "result":
            names = ("subtype", "is_error", "num_turns", "total_cost_usd", "duration_ms")
            result = {name: line[name] for name in names if name in line}
        elif line.get("subtype") == "init":
            facts = {name: line[name] for name in ("model", "cwd") if line.get(name)}
        message = line.get("message")
        if line.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            continue
        agent = line.get("parent_tool_use_id") or ""
        log = parts.setdefault(agent, LogConversation([]))
        session = line.get("session_id")
        log.id = f"{session}/{agent}" if agent else session
        log.parent = session if agent else None
        log.add_line(_read_message, message)
    for agent, log in parts.items():
        log.metadata = facts | ({} if agent else result)
        log.stop = "limit" if result.get("subtype") == "error_max_turns" else "complete"
        yield log


def _read_message(message: dict[str, Any]) -> list[LogMessage]:
    usage = as_mapping(message.get("usage"))
    parts = read_message({"role": message["role"], "content": message.get("content")})
    for part in parts:
        if part.role == "assistant":
            part.group, part.model = message.get("id"), message.get("model")
            part.usage = (usage.get("input_tokens"), usage.get("output_tokens"), None)
    return parts
