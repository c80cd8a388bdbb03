"""OpenClaw: telemetry (`agent.start` with the history before it, tools, messages in and out), and
stored sessions, which are those of the agent Pi in it: `session`, then `message` lines.

`datasets` reads sessions with the package teich, and of telemetry nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import Call, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, kept

whole_file = True
EVENTS = ("message.in", "message.out", "agent.start", "agent.end", "tool.start", "tool.end")
PROGRAM = ("custom", "bashExecution", "branchSummary", "compactionSummary")
"""Roles of what the program put in as the user's."""


def recognises(first: object) -> bool:
    """An event, or a line of a session."""
    line = first if isinstance(first, dict) else {}
    is_stored = isinstance(line.get("message"), dict) and "parentId" in line
    is_session = line.get("type") == "session" and "cwd" in line
    return line.get("type") in EVENTS or is_session or (line.get("type") == "message" and is_stored)


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversation of each session."""
    if any(line.get("type") in EVENTS for line in lines):
        yield from _read_telemetry(lines)
        return
    log = LogConversation()
    for line in lines:
        if line.get("type") == "session":
            log.id, log.time = line.get("id"), line.get("timestamp")
            log.metadata = kept(line, "cwd", "version")
        elif line.get("type") == "message":
            log.add(_read, line["message"])
    yield log


def _read(item: dict[str, Any]) -> list[LogMessage]:
    fields = kept(item, "role", "content", "toolCallId", "isError", "model", "stopReason")
    role = "user" if fields["role"] in PROGRAM else fields["role"]
    usage = as_mapping(item.get("usage"))
    return read_message(
        fields | {"role": role}, usage=(usage.get("input"), usage.get("output"), None)
    )


def _read_telemetry(events: list[dict[str, Any]]) -> Iterator[LogConversation]:
    """Yield each session as the history that its last start has, its prompt, and what followed: the
    calls made there and what was sent."""
    logs: dict[str, LogConversation] = {}
    for event in events:
        key, kind = as_text(event.get("sessionKey")), event["type"]
        if kind == "agent.start" and "messages" in event:
            log = logs.setdefault(key, LogConversation(id=key))
            history = [message for item in event["messages"] for message in _read(item)]
            log.messages = history if len(history) >= len(log.messages) else log.messages
            log.messages.append(LogMessage("user", as_text(event.get("prompt"))))
            log.parent = "agent:main:main" if ":subagent:" in key else None
            continue
        log = logs.get(key) or next(iter(logs.values()), LogConversation())
        if kind == "tool.start":
            call = Call(as_text(event.get("toolName")), as_text(event.get("params") or {}))
            log.messages.append(LogMessage("assistant", calls=[call]))
        elif kind == "message.out" and event.get("content") and event.get("success", True):
            log.messages.append(LogMessage("assistant", as_text(event["content"])))
    yield from logs.values()
