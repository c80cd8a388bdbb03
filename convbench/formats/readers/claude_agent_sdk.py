"""The message stream of Claude's Agent SDK: lines of type system, assistant, user and result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import kept

whole_file = True


def recognises(first: object) -> bool:
    """A line of the stream: its keys are in snake_case, those of a stored session are not."""
    if not isinstance(first, dict) or "sessionId" in first:
        return False
    known = first.get("type") in ("system", "assistant", "user", "result")
    return known and "session_id" in first


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversation of each agent: a sub-agent's lines name the call that started it."""
    logs: dict[str, LogConversation] = {}
    result: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for line in lines:
        if line.get("type") == "result":
            result = kept(line, "subtype", "is_error", "num_turns", "total_cost_usd", "duration_ms")
        elif line.get("subtype") == "init":
            facts = kept(line, "model", "cwd")
        message = line.get("message")
        if line.get("type") in ("user", "assistant") and isinstance(message, dict):
            agent, session = line.get("parent_tool_use_id") or "", line.get("session_id")
            log = logs.setdefault(agent, LogConversation())
            log.id = f"{session}/{agent}" if agent else session
            log.parent = session if agent else None
            log.add(read_api_message, message)
    for agent, log in logs.items():
        log.metadata = facts | ({} if agent else result)
        log.stop = "limit" if result.get("subtype") == "error_max_turns" else "complete"
        yield log


def read_api_message(message: dict[str, Any]) -> list[LogMessage]:
    """Return the messages of a message of the API; lines of one reply have one id."""
    return read_message(
        {"role": message["role"], "content": message.get("content")},
        group=message.get("id"),
        model=message.get("model"),
        finish=message.get("stop_reason"),
        usage=usage_of(message.get("usage")),
    )
