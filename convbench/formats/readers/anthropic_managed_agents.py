"""Event logs of Anthropic's managed agents: [method, payload] a line, or bare events."""

from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import at

whole_file = True
SIGNS = ("agent.message", "agent.tool_", "agent.mcp_tool_", "agent.thinking", "session.status_")


def recognises(first: object) -> bool:
    """A line of the log, or an event of a session."""
    if isinstance(first, list):
        return len(first) == 2 and str(first[0]).startswith("client.beta.")
    return isinstance(first, dict) and str(first.get("type")).startswith(SIGNS)


def read(lines: Any, where: str) -> Items:
    """Yield the session. Events that were sent come back in the stream, so each counts once, there;
    a custom tool's result is only sent."""
    log = LogConversation()
    asked: list[LogMessage] = []
    model = None
    for line in lines:
        method, payload = line if isinstance(line, list) else ("stream", line)
        payload = payload if isinstance(payload, dict) else payload[1]
        if method.endswith("sessions.create"):
            agent, system = payload.get("agent"), at(payload, "agent", "system")
            model = at(agent, "model", "id") or at(agent, "model")
            log.messages += [LogMessage("system", system)] if system else []
            log.id, log.tools = payload.get("id"), at(agent, "tools")
            log.metadata = {"agent": at(agent, "name")}
        known = {message.call_id for message in log.messages if message.role == "tool"}
        for event in payload.get("events", [payload]):
            for message in _read_event(event, model):
                if method.endswith("events.send") and message.role == "user":
                    asked.append(message)
                elif message.role != "tool" or message.call_id not in known:
                    log.messages.append(message)
    if not any(message.role == "user" for message in log.messages):
        log.messages = asked + log.messages
    yield log


def _read_event(event: dict[str, Any], model: Any) -> list[LogMessage]:
    kind, content = str(event.get("type")), event.get("content")
    if kind == "agent.thinking":
        content = [{**event, "type": "thinking"}]
    elif kind.endswith(("tool_use", "tool_result")):
        mark = event.get("custom_tool_use_id") or event.get("tool_use_id")
        content = [{**event, "tool_use_id": mark}]
    elif kind not in ("user.message", "agent.message"):
        return []
    role = "user" if kind == "user.message" else "assistant"
    made = read_message({"role": role, "content": content}, model=model)
    return [m for m in made if m.text or m.reasoning or m.calls or m.pictures or m.role == "tool"]
