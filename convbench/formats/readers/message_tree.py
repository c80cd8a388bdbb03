"""Trees of messages, a row each (OpenAssistant): each path from a prompt to an assistant's message
is a conversation, and the replies to one prompt are its samples, by their rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_role
from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import as_number, as_text, kept

whole_file = True
DEEPEST = 1000
"""Most messages of a path."""


def recognises(first: object) -> bool:
    """A message with its parent."""
    return isinstance(first, dict) and {"message_id", "parent_id", "text", "role"} <= first.keys()


def read(rows: Any, where: str) -> Iterator[LogConversation]:
    """Yield each reply with all before it; only it is learnt. Deleted messages are left out."""
    by_id = {row["message_id"]: row for row in rows if not row.get("deleted")}
    replies = defaultdict(list)
    for row in by_id.values():
        if as_role(row.get("role")) == "assistant":
            replies[row.get("parent_id")].append(row)
    for row in (row for siblings in replies.values() for row in siblings):
        path = [row]
        while (above := by_id.get(path[-1].get("parent_id"))) is not None and len(path) < DEEPEST:
            path.append(above)
        rank = as_number(row.get("rank"))
        yield LogConversation(
            [
                LogMessage(as_role(one["role"]), as_text(one.get("text")), context=one is not row)
                for one in reversed(path)
            ],
            task=row.get("parent_id"),
            group=row.get("message_tree_id"),
            rewards={} if rank is None else {"reward": -rank},
            time=row.get("created_date"),
            metadata=kept(row, "message_id", "message_tree_id", "lang", "review_result", "labels"),
        )
