"""OpenClaw: telemetry (`agent.start` with the history before it, tools, messages in and out), and
stored sessions, which are those of the agent Pi in it: `session`, then `message` lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_text, as_time, read_message
from convbench.formats.log import Call, Item, LogConversation, LogMessage

whole_file = True
EVENTS = ("message.in", "message.out", "agent.start", "agent.end", "tool.start", "tool.end")


def recognises(first: object) -> bool:
    """An event, or a line of a session."""
    if not isinstance(first, dict):
        return False
    if first.get("type") in EVENTS:
        return True
    stored = first.get("type") == "message" and isinstance(first.get("message"), dict)
    return (first.get("type") == "session" and "cwd" in first) or (stored and "parentId" in first)


def read(lines: Any, where: str) -> Iterator[Item]:
    """Yield the conversation of each session."""
    lines = [line for line in lines if isinstance(line, dict)]
    if any(line.get("type") in EVENTS for line in lines):
        yield from _read_telemetry(lines)
        return
    log = LogConversation([])
    for line in lines:
        if line.get("type") == "session":
            log.id, log.time = line.get("id"), as_time(line.get("timestamp"))
            log.metadata = {k: line[k] for k in ("cwd", "version") if line.get(k)}
        elif line.get("type") == "message":
            log.add_line(_read, line["message"])
    yield log


def _read(item: dict[str, Any]) -> list[LogMessage]:
    keys = ("role", "content", "toolCallId", "toolName", "isError", "model")
    fields = {key: item[key] for key in keys if item.get(key) is not None}
    if fields["role"] in ("custom", "bashExecution", "branchSummary", "compactionSummary"):
        fields["role"] = "user"  # what the program put in as the user's
    parts = read_message(fields)
    usage = as_mapping(item.get("usage"))
    for part in parts:
        if part.role == "assistant":
            part.finish = item.get("stopReason")
            part.usage = (usage.get("input"), usage.get("output"), None)
    return parts


def _read_telemetry(events: list[dict[str, Any]]) -> Iterator[Item]:
    """Yield each session as the history that its last start has, its prompt, and what followed: the
    calls made there and what was sent."""
    logs: dict[str, LogConversation] = {}
    names: dict[str, str] = {}
    for event in events:
        key = as_text(event.get("sessionKey"))
        kind = event["type"]
        if kind == "agent.start":
            if "messages" not in event:
                continue
            log = logs.setdefault(key, LogConversation([], id=key))
            history = [part for item in event["messages"] for part in _read(item)]
            if len(history) >= len(log.messages) or not log.messages:
                log.messages = history
            log.messages.append(LogMessage("user", as_text(event.get("prompt"))))
            log.parent = "agent:main:main" if ":subagent:" in key else None
        elif kind in ("tool.start", "tool.end"):
            home = key if key in logs else names.get(as_text(event.get("agentId")), "")
            log = logs.get(home) or next(iter(logs.values()), LogConversation([]))
            if kind == "tool.start":
                call = Call(as_text(event.get("toolName")), as_text(event.get("params") or {}))
                log.messages.append(LogMessage("assistant", calls=[call]))
        elif kind == "message.out":
            log = next(iter(logs.values()), LogConversation([]))
            if event.get("content") and event.get("success", True):
                log.messages.append(LogMessage("assistant", as_text(event["content"])))
    yield from logs.values()
