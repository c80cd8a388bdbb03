"""OpenHands' lists of events, and `history` of its evaluation's output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_text, as_time, read_content
from convbench.formats.log import Call, LogConversation, LogMessage

NOISE = ("agent_state_changed", "change_agent_state", "recall", "null", "condensation", None)
OWN = ("action", "thought", "content", "args", "observation")


def recognises(first: object) -> bool:
    """A list of events, or an object with one."""
    events = first.get("history") if isinstance(first, dict) else first
    if not isinstance(events, list) or not events:
        return False
    event = events[0][0] if isinstance(events[0], list) and events[0] else events[0]
    return isinstance(event, dict) and ("action" in event or "observation" in event)


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversation of a list of events."""
    about = record if isinstance(record, dict) else {}
    events = about.get("history", record)
    flat = [one for event in events for one in (event if isinstance(event, list) else [event])]
    log = LogConversation([], task=about.get("instance_id"))
    for number, event in enumerate(flat):
        message = _read_event(event, number)
        if message is not None:
            log.messages.append(message)
        args = as_mapping(event.get("args"))
        log.tools = log.tools or args.get("tools") or []
    result = as_mapping(about.get("test_result")).get("report") or about.get("report")
    resolved = as_mapping(result).get("resolved")
    log.rewards = {"reward": float(resolved)} if isinstance(resolved, bool) else {}
    log.time = as_time(flat[0].get("timestamp")) if flat else None
    names = ("issue", "error", "success", "metrics", "test_result")
    log.metadata = {name: about[name] for name in names if about.get(name) is not None}
    if about.get("git_patch"):
        log.metadata["git_patch"] = about["git_patch"]
    yield log


def _read_event(event: dict[str, Any], number: int) -> LogMessage | None:
    kind, observed = event.get("action"), event.get("observation")
    args = as_mapping(event.get("args")) or {k: v for k, v in event.items() if k not in OWN}
    thought = as_text(as_mapping(event.get("args")).get("thought") or event.get("thought"))
    content = as_mapping(event.get("args")).get("content", event.get("content"))
    if observed is not None and kind is None:
        if observed in NOISE:
            return None
        pictures = as_mapping(event.get("extras")).get("image_urls")
        text = read_content(content).text or as_text(event.get("message"))
        mark = event.get("cause")
        return LogMessage(
            "tool",
            text,
            call_id=None if mark is None else str(mark),
            error=observed == "error",
            pictures=len(pictures) if isinstance(pictures, list) else 0,
        )
    if kind in NOISE:
        return None
    if kind == "system":
        return LogMessage("system", as_text(content))
    if kind == "message":
        first = event.get("source") is None and number == 0  # older files do not say who spoke
        own = event.get("source", "agent") == "agent" and not first
        return LogMessage(
            "assistant" if own else "user", as_text(content) or as_text(event.get("message"))
        )
    if kind in ("finish", "reject"):
        said = as_mapping(event.get("args")).get("final_thought") or thought or content
        return LogMessage("assistant", as_text(said) or as_text(event.get("message")))
    meta = as_mapping(event.get("tool_call_metadata"))
    response = as_mapping(meta.get("model_response"))
    choice = as_mapping(next(iter(response.get("choices") or ()), None))
    said = as_mapping(choice.get("message"))
    made = [c for c in said.get("tool_calls") or () if c.get("id") == meta.get("tool_call_id")]
    given = as_mapping(as_mapping(made[0].get("function")).get("arguments")) if made else {}
    noise = ("thought", "is_confirmed", "confirmation_state", "security_risk", "hidden", "id")
    given = given or {k: v for k, v in args.items() if k not in noise and v not in (None, "")}
    text = as_text(said.get("content")) or thought
    return LogMessage(
        "assistant",
        text,
        calls=[
            Call(as_text(meta.get("function_name") or kind), as_text(given), str(event.get("id")))
        ],
        model=response.get("model"),
        group=as_text(response.get("id")) or None,
    )
