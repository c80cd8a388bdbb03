"""Codex' rollouts (~/.codex/sessions/**.jsonl): items of Responses in `response_item` lines, which
`event_msg` lines repeat for the screen; before 2025-09 bare items. And the stream of `codex exec
--json`: items that start and are completed; what the user asked is not in it.

`datasets` reads rollouts with the package teich, which takes the program's items for the user's.
"""

from typing import Any

from convbench.formats.dialects import response_items
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, at, kept

whole_file = True
TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
UNSAID = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "<INSTRUCTIONS>")
OWN = ("id", "type", "status", "result", "error", "tool", "server", "arguments")


def recognises(first: object) -> bool:
    line = as_mapping(first)
    if "payload" in line:
        return line.get("type") in TYPES and isinstance(line["payload"], dict)
    is_old = {"id", "timestamp", "instructions"} <= line.keys() or "record_type" in line
    return is_old or as_text(line.get("type")).startswith(("thread.", "turn.", "item."))


def read(lines: Any, where: str) -> Items:
    """Yield the rollout; after the history was replaced by a summary (`compacted`), another."""
    log, model = LogConversation(), None
    reply = part = 0
    items: dict[Any, Any] = {}  # of the stream: the last state of each
    for line in lines:
        payload, kind = line.get("payload", line), as_text(line.get("type"))
        if kind == "session_meta" or ("instructions" in line and "payload" not in line):
            log.metadata |= kept(payload, "id", "cwd", "cli_version", "originator", "git")
            log.id, log.time = payload.get("id"), payload.get("timestamp")
            text = payload.get("instructions")
            log.messages += [LogMessage("system", text)] if text else []
        elif kind == "turn_context":
            model = payload.get("model")
        elif kind == "compacted":
            yield log
            part, text = part + 1, payload.get("message")
            log = LogConversation(id=f"{log.id}/{part}", parent=log.id, metadata=log.metadata)
            log.messages += response_items(payload.get("replacement_history") or [])
            log.messages += [LogMessage("user", text)] if text else []
        elif kind in ("thread.started", "turn.completed"):
            log.id = line.get("thread_id") or log.id
            log.metadata |= kept(line, "usage")
        elif kind in ("turn.failed", "error"):
            error = line.get("error") or line.get("message")
            log.failure = as_text(at(error, "message") or error)
        elif kind.startswith("item."):
            items[at(line, "item", "id")] = line["item"]
        elif kind == "response_item" or ("payload" not in line and kind):
            is_own = payload.get("role", "assistant") == "assistant"
            reply += as_text(payload.get("type")).endswith("_output") or not is_own
            log.add(_read, payload, f"reply {part}.{reply}", model)
    for item in items.values():
        log.add(_read_streamed, item)
    yield log


def _read(payload: Any, group: str, model: Any) -> list[LogMessage]:
    """Return the messages of an item, but not what the program wrote as the user's."""
    messages = response_items([payload], group=group, model=model)
    return [m for m in messages if m.role != "user" or not m.text.lstrip().startswith(UNSAID)]


def _read_streamed(item: dict[str, Any]) -> list[LogMessage]:
    kind, text = item.get("type") or item.get("item_type"), as_text(item.get("text"))
    if kind in ("agent_message", "assistant_message"):
        return [LogMessage("assistant", text)]
    if kind in ("reasoning", "error", "todo_list", None):
        return [LogMessage("assistant", reasoning=text)] if text else []
    given = item.get("arguments") or {k: v for k, v in item.items() if k not in OWN}
    name, output = as_text(item.get("tool") or kind), item.get("result") or item.get("error")
    failed = item.get("status") == "failed"
    if kind == "command_execution":
        name, given = "shell", {"command": item.get("command")}
        output, failed = item.get("aggregated_output"), item.get("exit_code") not in (0, None)
    call = {"type": "tool_call", "name": name, "arguments": given, "call_id": item.get("id")}
    call |= {} if item.get("status") == "in_progress" else {"output": as_text(output)}
    messages = response_items([call])
    messages[-1].error = failed
    return messages
