"""Message lists of Strands agents (Bedrock's Converse blocks), alone or by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_messages, text_in
from convbench.formats.log import Item, LogConversation, LogMessage, each

BLOCKS = {"text", "toolUse", "toolResult", "image", "document", "video", "reasoningContent"}
KNOWN = ("messages", "system_prompt", "system", "tools")


def recognises(first: object) -> bool:
    """A list of messages whose blocks have no type, or an object of several agents by name."""
    if isinstance(first, dict):
        return bool(first) and all(
            isinstance(agent, dict) and recognises(agent.get("messages"))
            for agent in first.values()
        )
    message = first[0] if isinstance(first, list) and first else None
    blocks = message.get("content") if isinstance(message, dict) else None
    return isinstance(blocks, list) and all(
        isinstance(b, dict) and len(b) == 1 and b.keys() <= BLOCKS for b in blocks
    )


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield the conversations of a record."""
    named = {None: {"messages": record}} if isinstance(record, list) else record
    yield from each(named.items(), lambda item: _read(*item))


def _read(name: str | None, agent: dict[str, Any]) -> LogConversation:
    text = text_in(agent.get("system_prompt") or agent.get("system"))
    system = [LogMessage("system", text)] if text else []
    return LogConversation(
        system + read_messages(agent["messages"]),
        id=name or agent.get("session_id"),
        tools=agent.get("tools"),
        metadata={k: v for k, v in agent.items() if k not in KNOWN and v not in (None, "", [], {})},
    )
