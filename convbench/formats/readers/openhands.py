"""OpenHands' lists of events, and `history` of its evaluation's output."""

from typing import Any

from convbench.formats.dialects import as_call, result_message
from convbench.formats.log import Items, LogConversation, LogMessage, Role
from convbench.formats.values import as_list, as_mapping, as_text, at, kept

NOISE = ("agent_state_changed", "change_agent_state", "recall", "null", "condensation", None)
# Fields of an action that its call did not have.
OWN = ("action", "thought", "id", "is_confirmed", "confirmation_state", "security_risk", "hidden")


def recognises(first: object) -> bool:
    event = at(first, "history", 0) or at(first, 0)
    event = as_mapping(at(event, 0) or event)
    return "action" in event or "observation" in event


def read(record: Any, where: str) -> Items:
    """Yield the conversation of a list of events."""
    about = record if isinstance(record, dict) else {"history": record}
    events = [event for some in about["history"] for event in as_list(some) or [some]]  # or pairs
    log = LogConversation(task=about.get("instance_id"), time=at(events, 0, "timestamp"))
    log.messages = [m for number, event in enumerate(events) for m in _read(event, number)]
    log.tools = next((tools for event in events if (tools := at(event, "args", "tools"))), None)
    log.rewards = {"reward": at(about, "test_result", "report", "resolved")}
    log.metadata = kept(about, "issue", "error", "success", "metrics", "test_result", "git_patch")
    yield log


def _read(event: dict[str, Any], number: int) -> list[LogMessage]:
    kind, observed = event.get("action"), event.get("observation")
    args = as_mapping(event.get("args", event))  # older events are their own arguments
    if (kind or observed) in NOISE:
        return []
    if kind is None:
        value = args.get("content") or event.get("message")
        return [result_message(value, event.get("cause"), error=observed == "error")]
    if kind in ("system", "message", "finish", "reject"):
        text = args.get("final_thought") or args.get("content") or args.get("thought")
        text = as_text(text or event.get("message"))
        source = event.get("source", "agent" if number else "user")  # older files do not say
        role: Role = "assistant" if source == "agent" else "user"
        return [LogMessage("system" if kind == "system" else role, text)]
    meta = as_mapping(event.get("tool_call_metadata"))  # the call that the model made
    response = as_mapping(meta.get("model_response"))
    message = as_mapping(at(response, "choices", 0, "message"))
    made = {call.get("id"): call for call in as_list(message.get("tool_calls"))}
    given = as_mapping(at(made.get(meta.get("tool_call_id")), "function", "arguments"))
    given = given or {k: v for k, v in args.items() if k not in OWN and v not in (None, "")}
    name, said = meta.get("function_name") or kind, message.get("content") or args.get("thought")
    call = as_call({"name": name, "arguments": given, "id": event.get("id")})
    model, group = response.get("model"), response.get("id")
    return [LogMessage("assistant", as_text(said), calls=[call], model=model, group=group)]
