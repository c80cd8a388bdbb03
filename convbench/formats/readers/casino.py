"""CaSiNo's negotiations of two people, neither an assistant: `--policy mturk_agent_1` names one."""

from typing import Any

from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, at, kept


def recognises(first: object) -> bool:
    return {"chat_logs", "participant_info"} <= as_mapping(first).keys()


def read(record: Any, where: str) -> Items:
    """Yield the negotiation. The shares of a deal are said; the reward of a side is its points."""
    info = as_mapping(record["participant_info"])
    log = LogConversation(task=record.get("dialogue_id"))
    log.metadata = kept(record, "participant_info", "annotations")
    log.rewards = {name: at(info, name, "outcomes", "points_scored") for name in info}
    for item in record["chat_logs"]:
        deal = kept(as_mapping(item.get("task_data")), "issue2youget", "issue2theyget")
        text = as_text(item.get("text")) + (f" {as_text(deal)}" if deal else "")
        log.messages.append(LogMessage("user", text, name=as_text(item["id"])))
    yield log
