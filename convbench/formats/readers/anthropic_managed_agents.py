"""Event logs of Anthropic's managed agents: [method, payload] a line, or bare events."""

from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_mapping, at

whole_file = True
SIGNS = ("agent.message", "agent.tool_", "agent.mcp_tool_", "agent.thinking", "session.status_")


def recognises(first: object) -> bool:
    if isinstance(first, list):
        return len(first) == 2 and str(first[0]).startswith("client.beta.")
    return str(as_mapping(first).get("type")).startswith(SIGNS)


def read(lines: Any, where: str) -> Items:
    """Yield the session. Most events that were sent come back in the stream; each counts once."""
    log, model = LogConversation(), None
    sent: list[LogMessage] = []
    for line in lines:
        method, payload = line if isinstance(line, list) else ("stream", line)
        payload = payload if isinstance(payload, dict) else payload[1]
        if method.endswith("sessions.create"):
            agent = as_mapping(payload.get("agent"))
            model = at(agent, "model", "id") or agent.get("model")
            log.messages += [LogMessage("system", agent["system"])] if agent.get("system") else []
            log.id, log.tools = payload.get("id"), agent.get("tools")
            log.metadata = {"agent": agent.get("name")}
        for event in payload.get("events", [payload]):
            kind, content = str(event.get("type")), event.get("content")
            if kind.endswith(("tool_use", "tool_result")):
                content = [{"tool_use_id": event.get("custom_tool_use_id"), **event}]
            elif kind not in ("user.message", "agent.message"):
                continue
            role = "user" if kind == "user.message" else "assistant"
            for message in read_message({"role": role, "content": content}, model=model):
                if message in sent:
                    sent.remove(message)
                else:
                    log.messages.append(message)
                    sent += [message] if method.endswith("events.send") else []
    yield log
