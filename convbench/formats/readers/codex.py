"""Codex' rollouts (~/.codex/sessions/**.jsonl): items of Responses in `response_item` lines, which
`event_msg` lines repeat for the screen; before 2025-09 bare items.

`datasets` reads them with the package teich, which takes the program's items for the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from convbench.formats.dialects import response_items
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import kept

whole_file = True
TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
UNSAID = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "<INSTRUCTIONS>")
"""How items of the user begin that the program wrote."""


def recognises(first: object) -> bool:
    """A line of a rollout, or the first of an older one."""
    if not isinstance(first, dict):
        return False
    if first.get("type") in TYPES and isinstance(first.get("payload"), dict):
        return True
    is_old = {"id", "timestamp", "instructions"} <= first.keys()
    return is_old or first.get("record_type") == "state"


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the rollout; after the history was replaced by a summary (`compacted`), another."""
    log = LogConversation()
    model = None
    reply = part = 0
    for line in lines:
        payload = line.get("payload", line)
        kind = line["type"] if "payload" in line else "response_item"
        if kind == "session_meta" or ("instructions" in line and "payload" not in line):
            log.metadata |= kept(payload, "id", "cwd", "cli_version", "originator", "git")
            log.id, log.time = payload.get("id"), payload.get("timestamp")
            if payload.get("instructions"):
                log.messages.append(LogMessage("system", payload["instructions"]))
        elif kind == "turn_context":
            model = payload.get("model")
        elif kind == "compacted":
            yield log
            part += 1
            history = response_items(payload.get("replacement_history") or [])
            history += [LogMessage("user", payload["message"])] if payload.get("message") else []
            log = LogConversation(
                history, id=f"{log.id}/{part}", parent=log.id, metadata=log.metadata
            )
        elif kind == "response_item" and "type" in payload:
            said_by_others = payload["type"].endswith("_output") or (
                payload["type"] == "message" and payload.get("role") != "assistant"
            )
            reply += said_by_others
            log.add(partial(_read_item, log, f"reply {part}.{reply}", model), payload)
    yield log


def _read_item(
    log: LogConversation, group: str, model: str | None, payload: dict[str, Any]
) -> list[LogMessage]:
    messages = response_items([payload], group=group, model=model)
    said = [m for m in messages if m.role != "user" or not m.text.lstrip().startswith(UNSAID)]
    log.dropped["items of the program, logged as the user's"] += len(messages) - len(said)
    return said
