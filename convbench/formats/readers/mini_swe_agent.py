"""mini-swe-agent's .traj.json: {info, messages, trajectory_format}, or a bare list of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import LeftOut, LogConversation
from convbench.formats.values import as_mapping, as_text, kept


def recognises(first: object) -> bool:
    """A trajectory, or a bare list of messages."""
    if isinstance(first, dict):
        return str(first.get("trajectory_format", "")).startswith("mini-swe-agent")
    items: list[Any] = first if isinstance(first, list) and len(first) > 1 else [None]
    has_roles = all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in items)
    return has_roles and "content" in items[0]


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the trajectory. Its last message, of role `exit`, is the program's."""
    about = record if isinstance(record, dict) else {"messages": record}
    info = as_mapping(about.get("info"))
    log = LogConversation(task=about.get("instance_id"))
    for item in about["messages"]:
        extra = as_mapping(item.get("extra"))
        if item["role"] == "exit":
            info.setdefault("exit_status", extra.get("exit_status"))
            continue
        response = as_mapping(extra.get("response"))
        log.messages += read_message(
            kept(item, "role", "content", "tool_calls", "tool_call_id"),
            model=response.get("model"),
            usage=usage_of(response.get("usage"), extra.get("cost")),
        )
    status = as_text(info.get("exit_status"))
    if not log.has_reply:
        raise LeftOut(f"no word of the policy (exit status {status or 'unknown'})")
    log.stop = "limit" if status.startswith("Limits") else "complete"
    log.metadata = kept(info, "exit_status", "submission", "model_stats", "mini_version")
    yield log
