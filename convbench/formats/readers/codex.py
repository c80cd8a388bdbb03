"""Codex' rollouts (~/.codex/sessions/**.jsonl), whose `event_msg` lines repeat the others for the
screen; and the stream of `codex exec --json`, which lacks what the user asked."""

from typing import Any

from convbench.formats.dialects import response_items, result_message
from convbench.formats.log import Call, Items, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, at, first_of, kept

whole_file = True
TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
FACTS = ("cwd", "cli_version", "originator", "git", "usage")
UNSAID = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "<INSTRUCTIONS>")
RESULTS = ("aggregated_output", "result", "error")  # of a streamed call, and what is no argument
ABOUT = (*RESULTS, "id", "type", "item_type", "status", "exit_code", "tool", "server")


def recognises(first: object) -> bool:
    line = as_mapping(first)
    is_old = {"id", "timestamp", "instructions"} <= line.keys()
    is_streamed = as_text(line.get("type")).startswith(("thread.", "turn.", "item."))
    return is_old or is_streamed or ("payload" in line and line.get("type") in TYPES)


def read(lines: Any, where: str) -> Items:
    """Yield the rollout; after the history was replaced by a summary (`compacted`), another."""
    log, model = LogConversation(), None
    reply = part = 0
    items: dict[Any, Any] = {}  # of the stream: the last state of each
    for line in lines:
        payload, kind = line.get("payload", line), as_text(line.get("type"))
        log.metadata = kept(payload, *FACTS) | log.metadata
        if kind in ("session_meta", "thread.started") or "instructions" in line:
            log.id, log.time = first_of(payload, "id", "thread_id"), payload.get("timestamp")
            text = payload.get("instructions")
            log.messages += [LogMessage("system", text)] if text else []
        elif kind == "turn_context":
            model = payload.get("model")
        elif kind == "compacted":
            yield log
            part += 1
            log = LogConversation(id=f"{log.id}/{part}", parent=log.id, metadata=log.metadata)
            summary = [{"role": "user", "content": payload.get("message")}]
            log.messages += response_items(payload.get("replacement_history") or summary)
        elif kind in ("turn.failed", "error"):
            log.failure = as_text(at(line, "error", "message") or line.get("message"))
        elif kind.startswith("item."):
            items[at(line, "item", "id")] = line["item"]
        elif kind == "response_item" or ("payload" not in line and kind):  # bare before 2025-09
            is_own = payload.get("role", "assistant") == "assistant"
            reply += as_text(payload.get("type")).endswith("_output") or not is_own
            log.add(_read, payload, f"reply {reply}", model)
    for item in items.values():
        log.add(_read_streamed, item)
    yield log


def _read(payload: Any, group: str, model: Any) -> list[LogMessage]:
    made = response_items([payload], group=group, model=model)
    return [m for m in made if m.role != "user" or not m.text.lstrip().startswith(UNSAID)]


def _read_streamed(item: dict[str, Any]) -> list[LogMessage]:
    kind = first_of(item, "type", "item_type")  # older releases: assistant_message
    text, mark = as_text(item.get("text")), as_text(item.get("id"))
    if kind in ("agent_message", "assistant_message"):
        return [LogMessage("assistant", text)]
    if kind in ("reasoning", "error", "todo_list"):
        return [LogMessage("assistant", reasoning=text)] if text else []
    name = as_text(item.get("tool") or ("shell" if kind == "command_execution" else kind))
    rest = {key: value for key, value in item.items() if key not in ABOUT}
    call = Call(name, as_text(item.get("arguments") or rest), mark)
    status = item.get("status", "completed")
    result = result_message(first_of(item, *RESULTS), mark, error=status == "failed")
    return [LogMessage("assistant", calls=[call]), *([] if status == "in_progress" else [result])]
