"""OpenHands' lists of events, and `history` of its evaluation's output."""

from typing import Any

from convbench.formats.dialects import as_call, result_message
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_text, at, kept

NOISE = ("agent_state_changed", "change_agent_state", "recall", "null", "condensation", None)
OWN = ("action", "thought", "content", "args", "observation")
UNSAID = ("thought", "is_confirmed", "confirmation_state", "security_risk", "hidden", "id")
"""Arguments of an action that its call did not have."""


def recognises(first: object) -> bool:
    event = first.get("history") if isinstance(first, dict) else first
    while isinstance(event, list) and event:
        event = event[0]
    return isinstance(event, dict) and ("action" in event or "observation" in event)


def read(record: Any, where: str) -> Items:
    """Yield the conversation of a list of events."""
    about = record if isinstance(record, dict) else {"history": record}
    nested = (event if isinstance(event, list) else [event] for event in about["history"])
    events = [event for some in nested for event in some]
    resolved = at(about, "test_result", "report", "resolved")
    resolved = at(about, "report", "resolved") if resolved is None else resolved
    yield LogConversation(
        [m for number, event in enumerate(events) for m in _read_event(event, number)],
        task=about.get("instance_id"),
        tools=next((tools for event in events if (tools := at(event, "args", "tools"))), None),
        rewards={"reward": resolved} if isinstance(resolved, bool) else {},
        time=at(events, 0, "timestamp"),
        metadata=kept(about, "issue", "error", "success", "metrics", "test_result", "git_patch"),
    )


def _read_event(event: dict[str, Any], number: int) -> list[LogMessage]:
    kind, observed = event.get("action"), event.get("observation")
    args, said = as_mapping(event.get("args")), as_text(event.get("message"))
    content = args.get("content", event.get("content"))
    thought = as_text(args.get("thought") or event.get("thought"))
    if kind is None and observed not in NOISE:
        result = result_message(content, event.get("cause"), error=observed == "error")
        result.text = result.text or said
        result.pictures += len(as_list(at(event, "extras", "image_urls")))
        return [result]
    if kind in NOISE:
        return []
    if kind == "system":
        return [LogMessage("system", as_text(content))]
    if kind == "message":
        is_first = event.get("source") is None and number == 0  # older files do not say who spoke
        own = event.get("source", "agent") == "agent" and not is_first
        return [LogMessage("assistant" if own else "user", as_text(content) or said)]
    if kind in ("finish", "reject"):
        text = as_text(args.get("final_thought") or thought or content) or said
        return [LogMessage("assistant", text)]
    meta = as_mapping(event.get("tool_call_metadata"))  # the call that the model made
    response = as_mapping(meta.get("model_response"))
    message = as_mapping(at(response, "choices", 0, "message"))
    given = args or {k: v for k, v in event.items() if k not in OWN}
    given = {k: v for k, v in given.items() if k not in UNSAID and v not in (None, "")}
    for call in as_list(message.get("tool_calls")):
        is_it = call.get("id") == meta.get("tool_call_id")
        given = as_mapping(at(call, "function", "arguments")) or given if is_it else given
    name = as_text(meta.get("function_name") or kind)
    call = as_call({"name": name, "arguments": given, "id": event.get("id")})
    text, group = as_text(message.get("content")) or thought, as_text(response.get("id")) or None
    return [LogMessage("assistant", text, calls=[call], model=response.get("model"), group=group)]
