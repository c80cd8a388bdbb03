"""SWE-agent's .traj files: `history` of messages, with what a run was beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import LogConversation
from convbench.formats.values import as_list, as_mapping, kept

KEYS = ("role", "content", "tool_calls", "tool_call_ids", "thinking_blocks")


def recognises(first: object) -> bool:
    """A trajectory."""
    row = first if isinstance(first, dict) else {}
    message = as_mapping(next(iter(as_list(row.get("history"))), None))
    return "role" in message and (
        "trajectory" in row or bool({"agent", "message_type"} & message.keys())
    )


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the trajectory. A worked example in it is context."""
    info = as_mapping(record.get("info"))
    status = str(info.get("exit_status") or "")
    messages = []
    for item in record["history"]:
        for message in read_message(kept(item, *KEYS)):
            message.context = bool(item.get("is_demo"))
            messages.append(message)
    yield LogConversation(
        messages,
        task=record.get("instance_id"),
        stop="limit" if "exit_cost" in status or "exit_context" in status else "complete",
        metadata=kept(info, "exit_status", "submission", "model_stats")
        | kept(record, "environment"),
    )
