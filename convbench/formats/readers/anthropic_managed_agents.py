"""Event logs of Anthropic's managed agents: [method, payload] a line, or bare events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import (
    as_call,
    as_mapping,
    as_text,
    read_content,
    result_message,
)
from convbench.formats.log import Item, LogConversation, LogMessage

whole_file = True


def recognises(first: object) -> bool:
    """A line of the log, or an event of a session."""
    if isinstance(first, list):
        return len(first) == 2 and str(first[0]).startswith("client.beta.")
    signs = ("agent.message", "agent.tool_", "agent.mcp_tool_", "agent.thinking", "session.status_")
    return isinstance(first, dict) and str(first.get("type")).startswith(signs)


def read(lines: Any, where: str) -> Iterator[Item]:
    """Yield the session. Events that were sent come back in the stream, so each counts once, there;
    a custom tool's result is only sent."""
    log = LogConversation([])
    asked: list[LogMessage] = []
    model = None
    for line in lines:
        method, payload = line if isinstance(line, list) else ("stream", line)
        payload = payload if isinstance(payload, dict) else payload[1]
        if method.endswith("sessions.create"):
            agent = as_mapping(payload.get("agent"))
            model = as_mapping(agent.get("model")).get("id") or agent.get("model")
            log.messages += [LogMessage("system", agent["system"])] if agent.get("system") else []
            log.tools = [t for t in agent.get("tools") or () if "name" in t]
            log.id = payload.get("id")
            log.metadata = {"agent": agent.get("name")}
        for event in payload.get("events", [payload]):
            message = _read_event(event, model)
            if message is None:
                continue
            is_sent = method.endswith("events.send")
            if is_sent and message.role == "user":
                asked.append(message)
                continue
            known = [m.call_id for m in log.messages if m.role == "tool"]
            if message.role != "tool" or message.call_id not in known:
                log.messages.append(message)
    if not any(m.role == "user" for m in log.messages):
        log.messages = asked + log.messages
    yield log


def _read_event(event: dict[str, Any], model: Any) -> LogMessage | None:
    kind = str(event.get("type"))
    content = read_content(event.get("content"))
    if kind == "user.message":
        return LogMessage("user", content.text, pictures=content.pictures)
    if kind == "agent.message":
        return LogMessage("assistant", content.text, model=model)
    if kind == "agent.thinking":
        thought = as_text(event.get("thinking")) or content.text
        return LogMessage("assistant", reasoning=thought, model=model) if thought else None
    if kind.startswith("agent.") and kind.endswith("tool_use"):
        return LogMessage("assistant", calls=[as_call(event)], model=model)
    if kind.endswith("tool_result"):
        names = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")
        mark = next((event[n] for n in names if event.get(n)), None)
        return result_message(event.get("content"), mark, error=bool(event.get("is_error")))
    return None
