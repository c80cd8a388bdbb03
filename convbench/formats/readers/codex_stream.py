"""The event stream of `codex exec --json`: items that start and are completed; what the user asked
is not in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_text
from convbench.formats.log import Call, Item, LogConversation, LogMessage

whole_file = True


def recognises(first: object) -> bool:
    """An event of the stream."""
    kind = first.get("type") if isinstance(first, dict) else None
    return str(kind).startswith(("thread.", "turn.", "item.")) and "payload" not in (first or ())  # type: ignore[operator]


def read(lines: Any, where: str) -> Iterator[Item]:
    """Yield the thread: completed items, and those that only started as calls without a result."""
    log = LogConversation([])
    done: dict[str, dict[str, Any]] = {}
    for event in (event for event in lines if isinstance(event, dict)):
        if event.get("type") == "thread.started":
            log.id = event.get("thread_id")
        elif event.get("type") == "turn.completed":
            log.metadata["usage"] = event.get("usage")
        elif event.get("type") in ("turn.failed", "error"):
            error = event.get("error") or event.get("message")
            log.failure = as_text(as_mapping(error).get("message") or error)
        elif "item" in event:
            item = event["item"]
            done[as_text(item.get("id"))] = item
    for item in done.items():
        log.add_line(lambda pair: _read_item(*pair), item)
    yield log


def _read_item(mark: str, item: dict[str, Any]) -> list[LogMessage]:
    kind = item.get("type") or item.get("item_type")
    if kind in ("agent_message", "assistant_message"):
        return [LogMessage("assistant", as_text(item.get("text")))]
    if kind == "reasoning":
        return [LogMessage("assistant", reasoning=as_text(item.get("text")))]
    if kind == "command_execution":
        call = Call("shell", json.dumps({"command": item.get("command")}), mark)
        result = LogMessage("tool", as_text(item.get("aggregated_output")), call_id=mark)
        result.error = item.get("exit_code") not in (0, None)
        ended = item.get("status") != "in_progress"
        return [LogMessage("assistant", calls=[call])] + ([result] if ended else [])
    if kind in ("error", "todo_list", None):
        return []
    known = ("id", "type", "status", "result", "error", "tool", "server", "arguments")
    given = item.get("arguments") or {k: v for k, v in item.items() if k not in known}
    call = Call(as_text(item.get("tool") or kind), json.dumps(given), mark)
    result = LogMessage("tool", as_text(item.get("result") or item.get("error")), call_id=mark)
    result.error = item.get("status") == "failed"
    return [LogMessage("assistant", calls=[call]), result]
