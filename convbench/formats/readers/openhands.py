"""OpenHands' lists of events, and `history` of its evaluation's output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import result_message
from convbench.formats.log import Call, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_text, kept

NOISE = ("agent_state_changed", "change_agent_state", "recall", "null", "condensation", None)
OWN = ("action", "thought", "content", "args", "observation")
UNSAID = ("thought", "is_confirmed", "confirmation_state", "security_risk", "hidden", "id")
"""Arguments of an action that its call did not have."""


def recognises(first: object) -> bool:
    """A list of events, or an object with one."""
    event = first.get("history") if isinstance(first, dict) else first
    while isinstance(event, list) and event:
        event = event[0]
    return isinstance(event, dict) and ("action" in event or "observation" in event)


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversation of a list of events."""
    about = record if isinstance(record, dict) else {"history": record}
    nested = (event if isinstance(event, list) else [event] for event in about["history"])
    events = [event for some in nested for event in some]
    arguments = (as_mapping(event.get("args")).get("tools") for event in events)
    report = as_mapping(about.get("test_result")).get("report") or about.get("report")
    resolved = as_mapping(report).get("resolved")
    yield LogConversation(
        [m for number, event in enumerate(events) for m in _read_event(event, number)],
        task=about.get("instance_id"),
        tools=next((tools for tools in arguments if tools), None),
        rewards={"reward": resolved} if isinstance(resolved, bool) else {},
        time=events[0].get("timestamp") if events else None,
        metadata=kept(about, "issue", "error", "success", "metrics", "test_result", "git_patch"),
    )


def _read_event(event: dict[str, Any], number: int) -> list[LogMessage]:
    kind, observed = event.get("action"), event.get("observation")
    args = as_mapping(event.get("args"))
    content, said = args.get("content", event.get("content")), as_text(event.get("message"))
    if kind is None and observed not in NOISE:
        result = result_message(content, event.get("cause"), error=observed == "error")
        result.text = result.text or said
        result.pictures += len(as_list(as_mapping(event.get("extras")).get("image_urls")))
        return [result]
    if kind in NOISE:
        return []
    if kind == "system":
        return [LogMessage("system", as_text(content))]
    if kind == "message":
        is_first = event.get("source") is None and number == 0  # older files do not say who spoke
        own = event.get("source", "agent") == "agent" and not is_first
        return [LogMessage("assistant" if own else "user", as_text(content) or said)]
    thought = as_text(args.get("thought") or event.get("thought"))
    if kind in ("finish", "reject"):
        text = as_text(args.get("final_thought") or thought or content) or said
        return [LogMessage("assistant", text)]
    return [_read_action(event, thought)]


def _read_action(event: dict[str, Any], thought: str) -> LogMessage:
    """Return an action as the call that the model made, where the event says it."""
    args = event.get("args") or {k: v for k, v in event.items() if k not in OWN}
    meta = as_mapping(event.get("tool_call_metadata"))
    response = as_mapping(meta.get("model_response"))
    choice = as_mapping(next(iter(response.get("choices") or ()), None))
    message = as_mapping(choice.get("message"))
    mark = meta.get("tool_call_id")
    made = [call for call in message.get("tool_calls") or () if call.get("id") == mark]
    given = as_mapping(as_mapping(made[0].get("function")).get("arguments")) if made else {}
    given = given or {k: v for k, v in args.items() if k not in UNSAID and v not in (None, "")}
    name = as_text(meta.get("function_name") or event["action"])
    return LogMessage(
        "assistant",
        as_text(message.get("content")) or thought,
        calls=[Call(name, as_text(given), str(event.get("id")))],
        model=response.get("model"),
        group=as_text(response.get("id")) or None,
    )
