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
    """Yield the session. Events that were sent come back in the stream, so each counts once, there;
    a custom tool's result is only sent."""
    log, model = LogConversation(), None
    asked: list[LogMessage] = []
    for line in lines:
        method, payload = line if isinstance(line, list) else ("stream", line)
        payload = payload if isinstance(payload, dict) else payload[1]
        if method.endswith("sessions.create"):
            agent = as_mapping(payload.get("agent"))
            model = at(agent, "model", "id") or agent.get("model")
            log.messages += [LogMessage("system", agent["system"])] if agent.get("system") else []
            log.id, log.tools = payload.get("id"), agent.get("tools")
            log.metadata = {"agent": agent.get("name")}
        known = {message.call_id for message in log.messages if message.role == "tool"}
        for event in payload.get("events", [payload]):
            for message in _read_event(event, model):
                if method.endswith("events.send") and message.role == "user":
                    asked.append(message)
                elif message.role != "tool" or message.call_id not in known:
                    log.messages.append(message)
    if all(message.role != "user" for message in log.messages):
        log.messages = asked + log.messages
    yield log


def _read_event(event: dict[str, Any], model: Any) -> list[LogMessage]:
    kind, content = str(event.get("type")), event.get("content")
    if kind.endswith(("tool_use", "tool_result")):
        content = [{"tool_use_id": event.get("custom_tool_use_id"), **event}]
    elif kind not in ("user.message", "agent.message", "agent.thinking"):
        return []
    elif kind == "agent.thinking":
        content = [{**event, "type": "thinking"}]
    role = "user" if kind == "user.message" else "assistant"
    made = read_message({"role": role, "content": content}, model=model)
    return [m for m in made if m.text or m.reasoning or m.calls or m.pictures or m.role == "tool"]
