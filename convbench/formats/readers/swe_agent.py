"""SWE-agent's .traj files: `history` of messages, with what a run was beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, read_message
from convbench.formats.log import LogConversation


def recognises(first: object) -> bool:
    """A trajectory."""
    history = first.get("history") if isinstance(first, dict) else None
    return (
        isinstance(history, list)
        and bool(history)
        and isinstance(history[0], dict)
        and ("agent" in history[0] or "message_type" in history[0] or "trajectory" in first)  # type: ignore[operator]
        and "role" in history[0]
    )


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the trajectory. A worked example in it is context."""
    log = LogConversation([], task=record.get("instance_id"))
    for item in record["history"]:
        keys = ("role", "content", "tool_calls", "tool_call_ids", "thinking_blocks")
        parts = read_message({key: item[key] for key in keys if item.get(key) is not None})
        for part in parts:
            part.context = bool(item.get("is_demo"))
        log.messages += parts
    info = as_mapping(record.get("info"))
    status = str(info.get("exit_status") or "")
    log.stop = "limit" if "exit_cost" in status or "exit_context" in status else "complete"
    log.metadata = {k: info[k] for k in ("exit_status", "submission", "model_stats") if k in info}
    log.metadata |= {"environment": record["environment"]} if "environment" in record else {}
    yield log
