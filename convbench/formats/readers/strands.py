"""Message lists of Strands agents (Bedrock's Converse blocks), alone or by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_text, read_content, read_message
from convbench.formats.log import Item, LogConversation, LogMessage, each

BLOCKS = {"text", "toolUse", "toolResult", "image", "document", "video", "reasoningContent"}


def recognises(first: object) -> bool:
    """A list of messages whose blocks have no type, an object with one, or several by name."""
    if isinstance(first, dict) and "messages" not in first:
        return bool(first) and all(isinstance(v, dict) and recognises(v) for v in first.values())
    items = first.get("messages") if isinstance(first, dict) else first
    if not isinstance(items, list) or not items or not isinstance(items[0], dict):
        return False
    blocks = items[0].get("content")
    return isinstance(blocks, list) and all(
        isinstance(b, dict) and len(b) == 1 and b.keys() <= BLOCKS for b in blocks
    )


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield the conversations of a record."""
    if isinstance(record, list):
        record = {"messages": record}
    named = {"": record} if "messages" in record else record
    yield from each(named.items(), lambda item: _read(*item))


def _read(name: str, value: dict[str, Any]) -> LogConversation:
    system = value.get("system_prompt") or value.get("system")
    text = read_content(system).text
    messages = [LogMessage("system", text)] if text else []
    for item in value["messages"]:
        messages += read_message(item)
    known = ("messages", "system_prompt", "system", "tools")
    rest = {k: v for k, v in value.items() if k not in known and v not in (None, "", [], {})}
    return LogConversation(
        messages,
        id=name or as_text(value.get("session_id")) or None,
        tools=value.get("tools") or [],
        metadata=rest,
    )
