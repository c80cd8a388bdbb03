"""Codex' rollouts (~/.codex/sessions/**.jsonl): items of Responses in `response_item` lines, which
`event_msg` lines repeat for the screen; before 2025-09 bare items."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from convbench.formats.dialects import as_mapping, as_time, response_items
from convbench.formats.log import Item, LogConversation, LogMessage

whole_file = True
TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
UNSAID = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "<INSTRUCTIONS>")
"""How items of the user begin that the program wrote."""
FACTS = ("id", "cwd", "cli_version", "originator", "git")


def recognises(first: object) -> bool:
    """A line of a rollout, or the first of an older one."""
    if not isinstance(first, dict):
        return False
    if first.get("type") in TYPES and isinstance(first.get("payload"), dict):
        return True
    return {"id", "timestamp", "instructions"} <= first.keys() or first.get(
        "record_type"
    ) == "state"


def read(lines: Any, where: str) -> Iterator[Item]:
    """Yield the rollout; after the history was replaced by a summary (`compacted`), another."""
    log = LogConversation([])
    model = None
    reply = part = 0
    for line in (line for line in lines if isinstance(line, dict)):
        payload = line.get("payload", line)
        kind = line["type"] if "payload" in line else "response_item"
        if kind == "session_meta" or ("instructions" in line and "payload" not in line):
            log.metadata |= {k: payload[k] for k in FACTS if payload.get(k)}
            log.id, log.time = payload.get("id"), as_time(payload.get("timestamp"))
            if payload.get("instructions"):
                log.messages.append(LogMessage("system", payload["instructions"]))
        elif kind == "turn_context":
            model = payload.get("model")
        elif kind == "compacted":
            yield log
            part += 1
            log = LogConversation(
                response_items(payload.get("replacement_history") or []),
                id=f"{log.id}/{part}",
                parent=log.id,
                metadata=log.metadata,
            )
            if payload.get("message"):
                log.messages.append(LogMessage("user", payload["message"]))
        elif kind == "response_item" and "type" in payload:
            own = payload["type"] not in ("message",) or payload.get("role") == "assistant"
            own = own and not payload["type"].endswith("_output")
            reply += not own
            group = f"reply {part}.{reply}" if own else None
            log.add_line(partial(_read_item, log, group, model), payload)
    log.metadata = {k: as_mapping(v) or v for k, v in log.metadata.items()}
    yield log


def _read_item(
    log: LogConversation, group: str | None, model: str | None, payload: dict[str, Any]
) -> list[LogMessage]:
    messages = response_items([_known(payload)])
    for message in messages:
        if message.role == "assistant":
            message.group, message.model = group, model
    said = [m for m in messages if m.role != "user" or not m.text.lstrip().startswith(UNSAID)]
    log.dropped["items of the program, logged as the user's"] += len(messages) - len(said)
    return said


def _known(payload: dict[str, Any]) -> dict[str, Any]:
    """Return an item without the summary of its reasoning where the reasoning itself is there."""
    if payload["type"] == "reasoning" and payload.get("content"):
        return {**payload, "summary": None}
    return payload
