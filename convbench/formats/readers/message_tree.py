"""Trees of messages, a row each (OpenAssistant): each path from a prompt to an assistant's message
is a conversation, and the replies to one prompt are its samples, by their rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_number, as_role, as_text, as_time
from convbench.formats.log import Item, LogConversation, LogMessage

whole_file = True


def recognises(first: object) -> bool:
    """A message with its parent."""
    return isinstance(first, dict) and {"message_id", "parent_id", "text", "role"} <= first.keys()


def read(rows: Any, where: str) -> Iterator[Item]:
    """Yield each reply with all before it; only it is learnt. Deleted messages are left out."""
    rows = [row for row in rows if isinstance(row, dict) and "message_id" in row]
    by_id = {row["message_id"]: row for row in rows if not row.get("deleted")}
    replies = defaultdict(list)
    for row in by_id.values():
        if as_role(row.get("role")) == "assistant":
            replies[row.get("parent_id")].append(row)
    for parent, siblings in replies.items():
        for row in siblings:
            path = [row]
            while (above := by_id.get(path[-1].get("parent_id"))) is not None and len(path) < 1000:
                path.append(above)
            messages = [
                LogMessage(as_role(one["role"]), as_text(one.get("text")), context=one is not row)
                for one in reversed(path)
            ]
            rank = as_number(row.get("rank"))
            known = ("message_id", "message_tree_id", "lang", "review_result", "labels")
            yield LogConversation(
                messages,
                task=as_text(parent),
                group=as_text(row.get("message_tree_id")) or None,
                rewards={} if rank is None else {"reward": -rank},
                time=as_time(row.get("created_date")),
                metadata={k: row[k] for k in known if row.get(k) is not None},
            )
