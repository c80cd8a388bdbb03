"""Gemini CLI's sessions: {sessionId, messages} with messages of type user and gemini."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_call, as_mapping, as_text, as_time, read_content
from convbench.formats.log import LogConversation, LogMessage


def recognises(first: object) -> bool:
    """A session."""
    return isinstance(first, dict) and {"sessionId", "projectHash", "messages"} <= first.keys()


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the session. Its notes to the user (type info, error) are no messages."""
    log = LogConversation([], id=record["sessionId"], time=as_time(record.get("startTime")))
    for item in record["messages"]:
        content = read_content(item.get("content"))
        if item.get("type") == "user":
            log.messages.append(LogMessage("user", content.text, pictures=content.pictures))
            log.messages += content.results
        elif item.get("type") == "gemini":
            thoughts = [as_mapping(t) for t in item.get("thoughts") or ()]
            tokens = as_mapping(item.get("tokens"))
            said = LogMessage(
                "assistant",
                content.text,
                "\n".join(f"{t.get('subject')}: {t.get('description')}" for t in thoughts),
                [as_call(call) for call in item.get("toolCalls") or ()] + content.calls,
                model=item.get("model"),
                usage=(tokens.get("input"), tokens.get("output"), None),
            )
            log.messages.append(said)
            for call in item.get("toolCalls") or ():
                parts = call["result"] if isinstance(call.get("result"), list) else []
                response = as_mapping(parts[0]).get("functionResponse") if parts else None
                output = as_mapping(as_mapping(response).get("response"))
                text = as_text(output.get("output") or output or call.get("resultDisplay"))
                if call.get("result") is not None:
                    log.messages.append(LogMessage("tool", text, call_id=call.get("id")))
        else:
            log.dropped["notes of the program"] += 1
    yield log
