"""Trees of messages, a row each (OpenAssistant); the replies to one are samples, by their rank."""

from typing import Any

from convbench.formats.dialects import as_role
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_number, kept

whole_file = True


def recognises(first: object) -> bool:
    return {"message_id", "parent_id", "text", "role"} <= as_mapping(first).keys()


def read(rows: Any, where: str) -> Items:
    """Yield each reply with all before it; only it is learnt. Deleted messages are left out."""
    by_id = {row["message_id"]: row for row in rows if not row.get("deleted")}
    for row in (row for row in by_id.values() if as_role(row["role"]) == "assistant"):
        rank, one = as_number(row.get("rank")), row
        log = LogConversation(task=row.get("parent_id"), group=row.get("message_tree_id"))
        log.rewards, log.time = {} if rank is None else {"reward": -rank}, row.get("created_date")
        log.metadata = kept(row, "message_id", "message_tree_id", "lang", "review_result", "labels")
        while one is not None and len(log.messages) < 1000:  # parents may form a ring
            said = LogMessage(as_role(one["role"]), one["text"], context=one is not row)
            log.messages.insert(0, said)
            one = by_id.get(one.get("parent_id"))
        yield log
