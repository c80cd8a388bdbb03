"""tau-bench's trajectories: a list of {task_id, reward, info, traj, trial}."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_messages
from convbench.formats.log import LogConversation
from convbench.formats.values import as_mapping, kept

STOP = "###STOP###"
"""What the simulated user says to end; a control token, no words."""


def recognises(first: object) -> bool:
    """A row of the results."""
    return isinstance(first, dict) and {"traj", "task_id"} <= first.keys()


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the trajectory of a row."""
    info = as_mapping(record.get("info"))
    messages = read_messages(record["traj"])
    for message in messages:
        if message.role == "user":
            message.text = message.text.replace(STOP, "").strip()
    yield LogConversation(
        messages,
        task=record["task_id"],
        trial=record.get("trial"),
        rewards={"reward": record.get("reward")},
        hidden=kept(info, "task"),
        stop="limit" if "reward_info" in info and info["reward_info"] is None else "complete",
        metadata=kept(info, "user_cost"),
    )
