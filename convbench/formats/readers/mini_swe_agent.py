"""mini-swe-agent's .traj.json: {info, messages, trajectory_format}, or a bare list of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_text, read_message
from convbench.formats.log import LeftOut, LogConversation


def recognises(first: object) -> bool:
    """A trajectory; a bare list is one if it begins with the system."""
    if isinstance(first, dict):
        return str(first.get("trajectory_format", "")).startswith("mini-swe-agent")
    return (
        isinstance(first, list)
        and len(first) > 1
        and all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in first)
        and "content" in first[0]
    )


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the trajectory. Its last message, of role `exit`, is the program's."""
    about = record if isinstance(record, dict) else {}
    info = as_mapping(about.get("info"))
    log = LogConversation([], task=about.get("instance_id"))
    for item in record if isinstance(record, list) else record["messages"]:
        extra = as_mapping(item.get("extra"))
        if item["role"] == "exit":
            info.setdefault("exit_status", extra.get("exit_status"))
            continue
        keys = ("role", "content", "tool_calls", "tool_call_id")
        response = as_mapping(extra.get("response"))
        usage = as_mapping(response.get("usage"))
        cost = extra.get("cost") if isinstance(extra.get("cost"), float) else None
        for part in read_message({k: item[k] for k in keys if item.get(k) is not None}):
            if part.role == "assistant":
                part.model = response.get("model")
                part.usage = (usage.get("prompt_tokens"), usage.get("completion_tokens"), cost)
            log.messages.append(part)
    status = as_text(info.get("exit_status"))
    if not any(message.role == "assistant" for message in log.messages):
        raise LeftOut(f"no word of the policy (exit status {status or 'unknown'})")
    log.stop = "limit" if status.startswith("Limits") else "complete"
    names = ("exit_status", "submission", "model_stats", "mini_version")
    log.metadata = {name: info[name] for name in names if info.get(name) is not None}
    yield log
