"""Gemini CLI's sessions: {sessionId, messages} with messages of type user and gemini."""

from typing import Any

from convbench.formats.dialects import read_message, result_message, usage_of
from convbench.formats.log import Items, LogConversation
from convbench.formats.values import as_list, as_mapping, at, kept


def recognises(first: object) -> bool:
    return {"sessionId", "projectHash", "messages"} <= as_mapping(first).keys()


def read(record: Any, where: str) -> Items:
    """Yield the session. Its notes to the user (type info, error) are no messages."""
    log = LogConversation(id=record["sessionId"], time=record.get("startTime"))
    for item in (one for one in record["messages"] if one.get("type") in ("user", "gemini")):
        calls, thoughts = as_list(item.get("toolCalls")), as_list(item.get("thoughts"))
        lines = (f"{thought.get('subject')}: {thought.get('description')}" for thought in thoughts)
        own = {"role": item["type"], "tool_calls": calls, "thinking": "\n".join(lines)}
        usage = usage_of(item.get("tokens"))
        log.messages += read_message(own | kept(item, "content", "model"), usage=usage)
        for call in (call for call in calls if call.get("result") is not None):
            output = at(call, "result", 0, "functionResponse", "response")
            log.messages.append(result_message(at(output, "output") or output, call.get("id")))
    yield log
