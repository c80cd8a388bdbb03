"""Event logs of Anthropic's managed agents: [method, payload] a line, or bare events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_call, read_content, result_message, text_in
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, first_of

whole_file = True
SIGNS = ("agent.message", "agent.tool_", "agent.mcp_tool_", "agent.thinking", "session.status_")


def recognises(first: object) -> bool:
    """A line of the log, or an event of a session."""
    if isinstance(first, list):
        return len(first) == 2 and str(first[0]).startswith("client.beta.")
    return isinstance(first, dict) and str(first.get("type")).startswith(SIGNS)


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the session. Events that were sent come back in the stream, so each counts once, there;
    a custom tool's result is only sent."""
    log = LogConversation()
    asked: list[LogMessage] = []
    model = None
    for line in lines:
        method, payload = line if isinstance(line, list) else ("stream", line)
        payload = payload if isinstance(payload, dict) else payload[1]
        if method.endswith("sessions.create"):
            agent = as_mapping(payload.get("agent"))
            model = as_mapping(agent.get("model")).get("id") or agent.get("model")
            log.messages += [LogMessage("system", agent["system"])] if agent.get("system") else []
            log.tools = agent.get("tools")
            log.id = payload.get("id")
            log.metadata = {"agent": agent.get("name")}
        for event in payload.get("events", [payload]):
            for message in _read_event(event, model):
                if method.endswith("events.send") and message.role == "user":
                    asked.append(message)
                elif message.role != "tool" or all(
                    message.call_id != known.call_id for known in log.messages
                ):
                    log.messages.append(message)
    if not any(message.role == "user" for message in log.messages):
        log.messages = asked + log.messages
    yield log


def _read_event(event: dict[str, Any], model: Any) -> list[LogMessage]:
    kind, content = str(event.get("type")), event.get("content")
    if kind == "user.message":
        return read_content(content, "user")
    if kind == "agent.message":
        return [LogMessage("assistant", text_in(content), model=model)]
    if kind == "agent.thinking":
        thought = as_text(event.get("thinking")) or text_in(content)
        return [LogMessage("assistant", reasoning=thought, model=model)] if thought else []
    if kind.startswith("agent.") and kind.endswith("tool_use"):
        return [LogMessage("assistant", calls=[as_call(event)], model=model)]
    if kind.endswith("tool_result"):
        mark = first_of(event, "tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")
        return [result_message(content, mark, error=bool(event.get("is_error")))]
    return []
