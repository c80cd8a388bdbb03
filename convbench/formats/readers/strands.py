"""Message lists of Strands agents (Bedrock's Converse blocks), alone or by name."""

from typing import Any

from convbench.formats.dialects import read_messages, text_in
from convbench.formats.log import Items, LogConversation, LogMessage, each
from convbench.formats.values import as_mapping, at, kept

BLOCKS = {"text", "toolUse", "toolResult", "image", "document", "video", "reasoningContent"}
KNOWN = ("messages", "system_prompt", "system", "tools")


def recognises(first: object) -> bool:
    """A list of messages whose blocks have no type, or an object of several agents by name."""
    if isinstance(first, dict):
        agents = [as_mapping(agent).get("messages") for agent in first.values()]
        return bool(agents) and all(map(recognises, agents))
    blocks = at(first, 0, "content")
    return isinstance(blocks, list) and all(
        isinstance(b, dict) and len(b) == 1 and b.keys() <= BLOCKS for b in blocks
    )


def read(record: Any, where: str) -> Items:
    """Yield the conversations of a record."""
    named = {None: {"messages": record}} if isinstance(record, list) else record
    yield from each(named.items(), _read)


def _read(item: tuple[str | None, dict[str, Any]]) -> LogConversation:
    name, agent = item
    text = text_in(agent.get("system_prompt") or agent.get("system"))
    return LogConversation(
        ([LogMessage("system", text)] if text else []) + read_messages(agent["messages"]),
        id=name or agent.get("session_id"),
        tools=agent.get("tools"),
        metadata=kept(agent, *(key for key in agent if key not in KNOWN)),
    )
