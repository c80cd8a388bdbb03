"""Message lists of Strands agents (Bedrock's Converse blocks), alone or by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_messages, text_in
from convbench.formats.log import Item, LogConversation, LogMessage, each

BLOCKS = {"text", "toolUse", "toolResult", "image", "document", "video", "reasoningContent"}
KNOWN = ("messages", "system_prompt", "system", "tools")


def recognises(first: object) -> bool:
    """A list of messages whose blocks have no type, an object with one, or several by name."""
    if isinstance(first, dict) and "messages" not in first:
        return bool(first) and all(isinstance(v, dict) and recognises(v) for v in first.values())
    items = first.get("messages") if isinstance(first, dict) else first
    message = items[0] if isinstance(items, list) and items else None
    blocks = message.get("content") if isinstance(message, dict) else None
    return isinstance(blocks, list) and all(
        isinstance(b, dict) and len(b) == 1 and b.keys() <= BLOCKS for b in blocks
    )


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield the conversations of a record."""
    one = {"messages": record} if isinstance(record, list) else record
    named = {None: one} if "messages" in one else one
    yield from each(named.items(), lambda item: _read(*item))


def _read(name: str | None, value: dict[str, Any]) -> LogConversation:
    text = text_in(value.get("system_prompt") or value.get("system"))
    system = [LogMessage("system", text)] if text else []
    return LogConversation(
        system + read_messages(value["messages"]),
        id=name or value.get("session_id"),
        tools=value.get("tools"),
        metadata={k: v for k, v in value.items() if k not in KNOWN and v not in (None, "", [], {})},
    )
