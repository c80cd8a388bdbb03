"""Message lists of Strands agents (Bedrock's Converse blocks), alone or by name."""

from typing import Any

from convbench.formats.log import Items
from convbench.formats.readers import rows
from convbench.formats.values import as_mapping, at

BLOCKS = {"text", "toolUse", "toolResult", "image", "document", "video", "reasoningContent"}


def recognises(first: object) -> bool:
    if isinstance(first, dict):
        return bool(first) and all(recognises(at(agent, "messages")) for agent in first.values())
    kinds = as_mapping(at(first, 0, "content", 0)).keys()
    return len(kinds) == 1 and kinds <= BLOCKS


def read(record: Any, where: str) -> Items:
    """Yield the conversations of a record, which are as those of sets (`rows`)."""
    named = {None: {"messages": record}} if isinstance(record, list) else record
    for name, agent in named.items():
        yield from rows.read({"id": name, **agent}, where)
