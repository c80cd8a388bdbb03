"""tau-bench's trajectories: a list of {task_id, reward, info, traj, trial}."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, read_message
from convbench.formats.log import LogConversation

STOP = "###STOP###"
"""What the simulated user says to end; a control token, no words."""


def recognises(first: object) -> bool:
    """A row of the results."""
    return isinstance(first, dict) and {"traj", "task_id"} <= first.keys()


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the trajectory of a row."""
    info = as_mapping(record.get("info"))
    messages = [part for item in record["traj"] for part in read_message(item)]
    for message in messages:
        if message.role == "user":
            message.text = message.text.replace(STOP, "").strip()
    reward = as_number(record.get("reward"))
    yield LogConversation(
        messages,
        task=str(record["task_id"]),
        trial=record.get("trial"),
        rewards={} if reward is None else {"reward": reward},
        hidden={"task": info["task"]} if info.get("task") else {},
        stop="limit" if "reward_info" in info and info["reward_info"] is None else "complete",
        metadata={"user_cost": info["user_cost"]} if info.get("user_cost") is not None else {},
    )
