"""CaSiNo's negotiations: two people bargain for food, water and firewood; neither is an assistant,
so `--policy mturk_agent_1` names one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import as_mapping, as_text


def recognises(first: object) -> bool:
    """A negotiation."""
    return isinstance(first, dict) and {"chat_logs", "participant_info"} <= first.keys()


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the negotiation; a deal that is submitted is said in words with its shares. The reward
    of each side is its points."""
    messages = []
    for item in record["chat_logs"]:
        deal = as_mapping(item.get("task_data"))
        shares = {k: v for k, v in deal.items() if isinstance(v, dict)}
        text = as_text(item.get("text")) + (f" {as_text(shares)}" if shares else "")
        messages.append(LogMessage("user", text, name=as_text(item["id"])))
    info = as_mapping(record["participant_info"])
    outcomes = {name: as_mapping(as_mapping(who).get("outcomes")) for name, who in info.items()}
    yield LogConversation(
        messages,
        task=record.get("dialogue_id"),
        rewards={name: outcome.get("points_scored") for name, outcome in outcomes.items()},
        metadata={"participant_info": info, "annotations": record.get("annotations") or []},
    )
