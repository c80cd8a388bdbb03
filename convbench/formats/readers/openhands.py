"""OpenHands' lists of events, and `history` of its evaluation's output."""

from typing import Any

from convbench.formats.dialects import as_call, result_message
from convbench.formats.log import Items, LogConversation, LogMessage, Role
from convbench.formats.values import as_list, as_mapping, as_text, at, kept

NOISE = ("agent_state_changed", "change_agent_state", "recall", "null", "condensation", None)
# Fields of an action that its call did not have.
OWN = ("action", "thought", "id", "is_confirmed", "confirmation_state", "security_risk", "hidden")


def recognises(first: object) -> bool:
    event = first.get("history") if isinstance(first, dict) else first
    while isinstance(event, list) and event:
        event = event[0]
    return isinstance(event, dict) and ("action" in event or "observation" in event)


def read(record: Any, where: str) -> Items:
    """Yield the conversation of a list of events."""
    about = record if isinstance(record, dict) else {"history": record}
    pairs = (event if isinstance(event, list) else [event] for event in about["history"])
    events = [event for pair in pairs for event in pair]
    report = as_mapping(at(about, "test_result", "report") or about.get("report"))
    yield LogConversation(
        [m for number, event in enumerate(events) for m in _read_event(event, number)],
        task=about.get("instance_id"),
        tools=next((tools for event in events if (tools := at(event, "args", "tools"))), None),
        rewards={"reward": report.get("resolved")},
        time=at(events, 0, "timestamp"),
        metadata=kept(about, "issue", "error", "success", "metrics", "test_result", "git_patch"),
    )


def _read_event(event: dict[str, Any], number: int) -> list[LogMessage]:
    kind, observed = event.get("action"), event.get("observation")
    args = as_mapping(event.get("args", event))  # older events are their own arguments
    if kind is None and observed not in NOISE:
        value = args.get("content") or event.get("message")
        return [result_message(value, event.get("cause"), error=observed == "error")]
    if kind in NOISE:
        return []
    if kind in ("system", "message", "finish", "reject"):
        texts = [as_text(args.get(name)) for name in ("final_thought", "content", "thought")]
        text = next(filter(None, texts), as_text(event.get("message")))
        source = event.get("source", "agent" if number else "user")  # older files do not say
        other: Role = "system" if kind == "system" else "user"
        is_own = kind in ("finish", "reject") or (kind == "message" and source == "agent")
        return [LogMessage("assistant" if is_own else other, text)]
    meta = as_mapping(event.get("tool_call_metadata"))  # the call that the model made
    response = as_mapping(meta.get("model_response"))
    message = as_mapping(at(response, "choices", 0, "message"))
    made = {call.get("id"): call for call in as_list(message.get("tool_calls"))}
    given = as_mapping(at(made.get(meta.get("tool_call_id")), "function", "arguments"))
    given = given or {k: v for k, v in args.items() if k not in OWN and v not in (None, "")}
    name = as_text(meta.get("function_name") or kind)
    call = as_call({"name": name, "arguments": given, "id": event.get("id")})
    text = as_text(message.get("content") or args.get("thought"))
    group = as_text(response.get("id")) or None
    return [LogMessage("assistant", text, calls=[call], model=response.get("model"), group=group)]
