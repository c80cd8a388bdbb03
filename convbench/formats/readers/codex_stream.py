"""The event stream of `codex exec --json`: items that start and are completed; what the user asked
is not in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from convbench.formats.log import Call, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text

whole_file = True
KNOWN = ("id", "type", "status", "result", "error", "tool", "server", "arguments")


def recognises(first: object) -> bool:
    """An event of the stream."""
    event = first if isinstance(first, dict) else {}
    signs = ("thread.", "turn.", "item.")
    return str(event.get("type")).startswith(signs) and "payload" not in event


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the thread: completed items, and those that only started as calls without a result."""
    log = LogConversation()
    items: dict[str, dict[str, Any]] = {}
    for event in lines:
        if event.get("type") == "thread.started":
            log.id = event.get("thread_id")
        elif event.get("type") == "turn.completed":
            log.metadata["usage"] = event.get("usage")
        elif event.get("type") in ("turn.failed", "error"):
            error = event.get("error") or event.get("message")
            log.failure = as_text(as_mapping(error).get("message") or error)
        elif "item" in event:
            items[as_text(event["item"].get("id"))] = event["item"]
    for mark, item in items.items():
        log.add(partial(_read_item, mark), item)
    yield log


def _read_item(mark: str, item: dict[str, Any]) -> list[LogMessage]:
    kind = item.get("type") or item.get("item_type")
    if kind in ("agent_message", "assistant_message"):
        return [LogMessage("assistant", as_text(item.get("text")))]
    if kind == "reasoning":
        return [LogMessage("assistant", reasoning=as_text(item.get("text")))]
    if kind in ("error", "todo_list", None):
        return []
    if kind == "command_execution":
        call = Call("shell", json.dumps({"command": item.get("command")}), mark)
        output, failed = item.get("aggregated_output"), item.get("exit_code") not in (0, None)
    else:
        given = item.get("arguments") or {k: v for k, v in item.items() if k not in KNOWN}
        call = Call(as_text(item.get("tool") or kind), json.dumps(given), mark)
        output, failed = item.get("result") or item.get("error"), item.get("status") == "failed"
    result = LogMessage("tool", as_text(output), call_id=mark, error=failed)
    is_done = item.get("status") != "in_progress"
    return [LogMessage("assistant", calls=[call])] + ([result] if is_done else [])
