"""Gemini CLI's sessions: {sessionId, messages} with messages of type user and gemini."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_call, read_content, result_message, text_in, usage_of
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping


def recognises(first: object) -> bool:
    """A session."""
    return isinstance(first, dict) and {"sessionId", "projectHash", "messages"} <= first.keys()


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the session. Its notes to the user (type info, error) are no messages."""
    log = LogConversation(id=record["sessionId"], time=record.get("startTime"))
    for item in record["messages"]:
        if item.get("type") == "user":
            log.messages += read_content(item.get("content"), "user")
        elif item.get("type") == "gemini":
            log.messages += _read_reply(item)
        else:
            log.dropped["notes of the program"] += 1
    yield log


def _read_reply(item: dict[str, Any]) -> list[LogMessage]:
    thoughts = [as_mapping(thought) for thought in item.get("thoughts") or ()]
    calls = item.get("toolCalls") or ()
    said = LogMessage(
        "assistant",
        text_in(item.get("content")),
        "\n".join(
            f"{thought.get('subject')}: {thought.get('description')}" for thought in thoughts
        ),
        [as_call(call) for call in calls],
        model=item.get("model"),
        usage=usage_of(item.get("tokens")),
    )
    return [said] + [_result(call) for call in calls if call.get("result") is not None]


def _result(call: dict[str, Any]) -> LogMessage:
    part = as_mapping(next(iter(as_list(call["result"])), None))
    output = as_mapping(as_mapping(part.get("functionResponse")).get("response"))
    text = output.get("output") or output or call.get("resultDisplay")
    return result_message(text, call.get("id"))
