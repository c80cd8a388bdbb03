"""Gemini CLI's sessions: {sessionId, messages} with messages of type user and gemini."""

from typing import Any

from convbench.formats.dialects import as_call, read_content, result_message, text_in, usage_of
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, at


def recognises(first: object) -> bool:
    """A session."""
    return {"sessionId", "projectHash", "messages"} <= as_mapping(first).keys()


def read(record: Any, where: str) -> Items:
    """Yield the session. Its notes to the user (type info, error) are no messages."""
    log = LogConversation(id=record["sessionId"], time=record.get("startTime"))
    for item in record["messages"]:
        if item.get("type") == "user":
            log.messages += read_content(item.get("content"), "user")
            continue
        if item.get("type") != "gemini":
            log.dropped["notes of the program"] += 1
            continue
        calls, thoughts = as_list(item.get("toolCalls")), as_list(item.get("thoughts"))
        said = LogMessage("assistant", text_in(item.get("content")), model=item.get("model"))
        said.reasoning = "\n".join(f"{t.get('subject')}: {t.get('description')}" for t in thoughts)
        said.calls, said.usage = [as_call(call) for call in calls], usage_of(item.get("tokens"))
        log.messages.append(said)
        for call in (call for call in calls if call.get("result") is not None):
            output = at(call, "result", 0, "functionResponse", "response")
            text = at(output, "output") or output or call.get("resultDisplay")
            log.messages.append(result_message(text, call.get("id")))
    yield log
