"""SWE-agent's .traj ({history, …}); mini-swe-agent's .traj.json ({messages, …} or a bare list)."""

from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Items, LogConversation
from convbench.formats.values import as_mapping, as_text, at, kept

KEYS = ("role", "content", "tool_calls", "tool_call_id", "tool_call_ids", "thinking_blocks")
LIMITS = ("Limits", "exit_cost", "exit_context")


def recognises(first: object) -> bool:
    if isinstance(first, list):
        return "content" in as_mapping(at(first, 0)) and all(at(m, "role") for m in first)
    message = as_mapping(at(first, "history", 0))
    is_full = "role" in message and bool({"agent", "message_type"} & message.keys())
    return is_full or as_text(at(first, "trajectory_format")).startswith("mini-swe-agent")


def read(record: Any, where: str) -> Items:
    """Yield the trajectory. A worked example (`is_demo`) is context; `exit` is the program's."""
    about = record if isinstance(record, dict) else {"messages": record}
    info = as_mapping(about.get("info"))
    log = LogConversation(task=about.get("instance_id"))
    for item in about.get("history") or about["messages"]:
        extra = as_mapping(item.get("extra"))
        if item["role"] == "exit":
            info = extra | info
            continue
        usage = usage_of(at(extra, "response", "usage"), extra.get("cost"))
        own = {"model": at(extra, "response", "model"), "context": bool(item.get("is_demo"))}
        log.messages += read_message(kept(item, *KEYS), usage=usage, **own)
    status = as_text(info.get("exit_status"))
    log.stop = "limit" if any(limit in status for limit in LIMITS) else "complete"
    log.metadata = kept(about | info, "exit_status", "submission", "model_stats", "environment")
    yield log
