"""Message lists of Strands agents (Bedrock's Converse blocks), alone or by name."""

from typing import Any

from convbench.formats.log import Items
from convbench.formats.readers import rows
from convbench.formats.values import as_mapping, at

BLOCKS = {"text", "toolUse", "toolResult", "image", "document", "video", "reasoningContent"}


def recognises(first: object) -> bool:
    if isinstance(first, dict):
        agents = [as_mapping(agent).get("messages") for agent in first.values()]
        return bool(agents) and all(map(recognises, agents))
    blocks = at(first, 0, "content")
    return isinstance(blocks, list) and all(
        isinstance(b, dict) and len(b) == 1 and b.keys() <= BLOCKS for b in blocks
    )


def read(record: Any, where: str) -> Items:
    """Yield the conversations of a record, which are as those of sets (`rows`)."""
    named = {None: {"messages": record}} if isinstance(record, list) else record
    for name, agent in named.items():
        yield from rows.read({"id": name, **agent}, where)
