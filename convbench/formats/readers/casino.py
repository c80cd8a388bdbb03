"""CaSiNo's negotiations: two people bargain for food, water and firewood; neither is an assistant,
so `--policy mturk_agent_1` names one."""

from typing import Any

from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text, at


def recognises(first: object) -> bool:
    return {"chat_logs", "participant_info"} <= as_mapping(first).keys()


def read(record: Any, where: str) -> Items:
    """Yield the negotiation; a deal that is submitted is said in words with its shares. The reward
    of each side is its points."""
    info = as_mapping(record["participant_info"])
    log = LogConversation(task=record.get("dialogue_id"))
    log.metadata = {"participant_info": info, "annotations": record.get("annotations") or []}
    log.rewards = {name: at(info, name, "outcomes", "points_scored") for name in info}
    for item in record["chat_logs"]:
        deal = as_mapping(item.get("task_data"))
        shares = {k: v for k, v in deal.items() if isinstance(v, dict)}
        text = as_text(item.get("text")) + (f" {as_text(shares)}" if shares else "")
        log.messages.append(LogMessage("user", text, name=as_text(item["id"])))
    yield log
