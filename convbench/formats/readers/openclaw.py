"""OpenClaw's telemetry, and its stored sessions, which are those of the agent Pi in it."""

from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Call, Items, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, kept

whole_file = True
PROGRAM = ("custom", "bashExecution", "branchSummary", "compactionSummary")  # as the user's
EVENTS = ("message.in", "message.out", "agent.start", "agent.end", "tool.start", "tool.end")


def recognises(first: object) -> bool:
    line = as_mapping(first)
    is_line = line.get("type") in ("session", "message") and bool({"cwd", "parentId"} & line.keys())
    return is_line or line.get("type") in EVENTS


def read(lines: Any, where: str) -> Items:
    """Yield each session; of telemetry the history of its last start, and what followed it."""
    logs: dict[str, LogConversation] = {}
    for line in lines:
        key, kind = as_text(line.get("sessionKey")), line.get("type")
        is_start = kind == "agent.start" and "messages" in line
        if is_start or kind in ("session", "message"):
            parent = "agent:main:main" if ":subagent:" in key else None
            logs.setdefault(key, LogConversation(id=key, parent=parent))
        log = logs.get(key) or next(iter(logs.values()), LogConversation())
        if kind == "session":
            log.id, log.time = line.get("id"), line.get("timestamp")
            log.metadata = kept(line, "cwd", "version")
        elif kind == "message":
            log.add(_read, line["message"])
        elif is_start:
            history = [message for item in line["messages"] for message in _read(item)]
            log.messages = max(history, log.messages, key=len)
            log.messages.append(LogMessage("user", as_text(line.get("prompt"))))
        elif kind == "tool.start":
            call = Call(as_text(line.get("toolName")), as_text(line.get("params") or {}))
            log.messages.append(LogMessage("assistant", calls=[call]))
        elif kind == "message.out" and line.get("content") and line.get("success", True):
            log.messages.append(LogMessage("assistant", as_text(line["content"])))
    yield from logs.values()


def _read(item: dict[str, Any]) -> list[LogMessage]:
    fields = kept(item, "role", "content", "toolCallId", "isError", "model", "stopReason")
    fields["role"] = "user" if fields["role"] in PROGRAM else fields["role"]
    return read_message(fields, usage=usage_of(item.get("usage")))
